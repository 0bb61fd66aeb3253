"""The decisions of the autopilot are kept, with their questions."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "autopilot_decisions",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("decision", sa.LargeBinary(), nullable=False),
        sa.Column("question", sa.LargeBinary(), nullable=True),
        sa.Column("experience", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_autopilot_decisions")),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("autopilot_decisions")
