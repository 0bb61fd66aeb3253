"""Who leads the scheduler; gangs that rounds stopped, counted for good."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Nobody leads until somebody asks to; what was preempted before is not counted."""
    op.create_table(
        "leadership",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("database", sa.String(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership")),
    )
    op.add_column("counters", sa.Column("preemptions", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Forget both."""
    with op.batch_alter_table("counters") as counters:
        counters.drop_column("preemptions")
    op.drop_table("leadership")
