"""The curves of jobs' metrics are kept."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """No job has a curve yet."""
    op.create_table(
        "metric_points",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("accelerator_type", sa.String(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_metric_points_job_id")),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_metric_points")),
    )
    op.create_index(op.f("ix_metric_points_at_s"), "metric_points", ["at_s"])


def downgrade() -> None:
    """Forget them."""
    op.drop_table("metric_points")
