"""What was expected of jobs, held against what became of them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nothing was expected of jobs that are known already."""
    op.create_table(
        "predictions",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("made_at_s", sa.Double(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=True),
        sa.Column("start_low_s", sa.Double(), nullable=True),
        sa.Column("start_high_s", sa.Double(), nullable=True),
        sa.Column("finish_s", sa.Double(), nullable=False),
        sa.Column("finish_low_s", sa.Double(), nullable=False),
        sa.Column("finish_high_s", sa.Double(), nullable=False),
        sa.Column("started_at_s", sa.Double(), nullable=True),
        sa.Column("finished_at_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_predictions")),
    )
    op.create_index(op.f("ix_predictions_finished_at_s"), "predictions", ["finished_at_s"])
    op.create_index(op.f("ix_predictions_made_at_s"), "predictions", ["made_at_s"])


def downgrade() -> None:
    """Forget them."""
    op.drop_table("predictions")
