"""Pauses, arrays, keys of many jobs; limits of tiers and what they used; the audit log by subject and user."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns and a table; what is stored keeps its meaning."""
    op.add_column("jobs", sa.Column("pause_requested", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("jobs", sa.Column("array_id", sa.String(), nullable=True))
    op.create_index(op.f("ix_jobs_array_id"), "jobs", ["array_id"])
    op.add_column("idempotency_keys", sa.Column("more_job_ids", sa.JSON(), nullable=True))
    op.add_column("tiers", sa.Column("cap", sa.Double(), server_default="1.0", nullable=False))
    op.add_column("tiers", sa.Column("default_priority", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("tiers", sa.Column("max_jobs", sa.BigInteger(), nullable=True))
    op.add_column("tiers", sa.Column("accelerator_hours_per_month", sa.Double(), nullable=True))
    op.add_column("tiers", sa.Column("budget_usd_per_month", sa.Double(), nullable=True))
    op.add_column("audit", sa.Column("action", sa.String(), server_default="changed", nullable=False))
    op.add_column("audit", sa.Column("user_name", sa.String(), server_default="", nullable=False))
    op.add_column("audit", sa.Column("round_index", sa.BigInteger(), nullable=True))
    op.create_index(op.f("ix_audit_subject_sequence"), "audit", ["subject", "sequence"])
    op.create_index(op.f("ix_audit_user_name_sequence"), "audit", ["user_name", "sequence"])
    op.create_table(
        "usage",
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("accelerator_hours", sa.Double(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("month", "tier", name=op.f("pk_usage")),
    )


def downgrade() -> None:
    """Drop what was added."""
    op.drop_table("usage")
    for table, names in _ADDED.items():
        with op.batch_alter_table(table) as batch:
            for index in _INDEXES.get(table, ()):
                batch.drop_index(index)
            for name in names:
                batch.drop_column(name)


_ADDED = {
    "audit": ("action", "user_name", "round_index"),
    "tiers": ("cap", "default_priority", "max_jobs", "accelerator_hours_per_month", "budget_usd_per_month"),
    "idempotency_keys": ("more_job_ids",),
    "jobs": ("pause_requested", "array_id"),
}
_INDEXES = {"audit": ("ix_audit_subject_sequence", "ix_audit_user_name_sequence"), "jobs": ("ix_jobs_array_id",)}
