"""Tiers' usage has plain worker hours, and how many gangs were lost in them."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    """Add the columns. Of the months before nobody knows them, so they are 0."""
    op.add_column("usage", sa.Column("worker_hours", sa.Double(), server_default="0", nullable=False))
    op.add_column("usage", sa.Column("lost_gangs", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Remove the columns."""
    with op.batch_alter_table("usage") as usage:
        usage.drop_column("lost_gangs")
        usage.drop_column("worker_hours")
