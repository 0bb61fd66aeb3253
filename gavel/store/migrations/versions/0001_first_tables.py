"""The first tables, one tier, no jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create everything."""
    _jobs()
    _belonging_to_jobs()
    _rounds()
    _tenants()
    counters = op.create_table(
        "counters",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_counters")),
    )
    op.bulk_insert(counters, [{"id": 1, "version": 0, "change": 0}])


def downgrade() -> None:
    """Drop everything."""
    for table in (
        "job_labels",
        "idempotency_keys",
        "users",
        "tokens",
        "tiers",
        "rounds",
        "jobs",
        "events",
        "documents",
        "counters",
        "audit",
    ):
        op.drop_table(table)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("submitted_at_s", sa.Double(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("steps_done", sa.BigInteger(), nullable=False),
        sa.Column("total_steps", sa.BigInteger(), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_change"), "jobs", ["change"])
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"])
    op.create_index(op.f("ix_jobs_state_tier"), "jobs", ["state", "tier"])
    op.create_index(op.f("ix_jobs_user_name_id"), "jobs", ["user_name", "id"])


def _belonging_to_jobs() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id")),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_job_labels")),
    )
    op.create_index(op.f("ix_job_labels_name_value_job_id"), "job_labels", ["name", "value", "job_id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_idempotency_keys_job_id")),
        sa.PrimaryKeyConstraint("user_name", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "events",
        sa.Column("sequence", SERIAL, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("round_index", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_id_sequence"), "events", ["job_id", "sequence"])


def _rounds() -> None:
    op.create_table(
        "rounds",
        sa.Column("round_index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("decision", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("round_index", name=op.f("pk_rounds")),
    )
    op.create_table(
        "documents",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_documents")),
    )


def _tenants() -> None:
    tiers = op.create_table(
        "tiers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("objective", sa.String(), nullable=False),
        sa.Column("guarantee", sa.Double(), nullable=False),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["parent"], ["tiers.name"], name=op.f("fk_tiers_parent")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tiers")),
    )
    default = {"name": "default", "weight": 1.0, "objective": "fairness", "guarantee": 0.0, "parent": None}
    op.bulk_insert(tiers, [default | {"version": 1}])
    op.create_table(
        "users",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("tiers", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_tokens")),
    )
    op.create_table(
        "audit",
        sa.Column("sequence", SERIAL, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("by_name", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit")),
    )
