"""Tiers say how the jobs of one user share what the user has."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column. Tiers that are there have the default from now on, as new ones do."""
    op.add_column("tiers", sa.Column("within_user", sa.String(), server_default="fast", nullable=False))


def downgrade() -> None:
    """Remove the column."""
    with op.batch_alter_table("tiers") as tiers:
        tiers.drop_column("within_user")
