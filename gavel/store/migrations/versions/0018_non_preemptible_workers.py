"""Tiers say how many workers their jobs that may not be preempted hold at most."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the column. Tiers that are there have no such limit."""
    op.add_column("tiers", sa.Column("non_preemptible_workers", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Remove the column."""
    with op.batch_alter_table("tiers") as tiers:
        tiers.drop_column("non_preemptible_workers")
