"""Tiers say how long an interactive session of their users may last."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the column. Tiers that are there have the default."""
    op.add_column("tiers", sa.Column("session_longest_s", sa.Double(), nullable=True))


def downgrade() -> None:
    """Remove the column."""
    with op.batch_alter_table("tiers") as tiers:
        tiers.drop_column("session_longest_s")
