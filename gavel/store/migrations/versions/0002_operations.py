"""Commands to the scheduler and what became of them; rounds that are amended while they are in force."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table of operations, and to each round the commit that wrote it last."""
    op.create_table(
        "operations",
        sa.Column("sequence", SERIAL, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("by_name", sa.String(), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("error_kind", sa.String(), nullable=False),
        sa.Column("error_field", sa.String(), nullable=False),
        sa.Column("finished_at_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_operations")),
        sa.UniqueConstraint("id", name=op.f("uq_operations_id")),
    )
    op.create_index(op.f("ix_operations_state_sequence"), "operations", ["state", "sequence"])
    op.add_column("rounds", sa.Column("change", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(op.f("ix_rounds_change"), "rounds", ["change"])


def downgrade() -> None:
    """Forget operations."""
    op.drop_index(op.f("ix_rounds_change"), "rounds")
    with op.batch_alter_table("rounds") as rounds:
        rounds.drop_column("change")
    op.drop_table("operations")
