"""What ended jobs leave is found by its age: an index of ends, of keys by their jobs, and of tokens by their jobs."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_ENDED = "state IN ('COMPLETED', 'FAILED', 'CANCELLED')"


def upgrade() -> None:
    """Add the instant of a job's end as a column; delete the tokens of jobs that have ended."""
    op.add_column("jobs", sa.Column("finished_at_s", sa.Double(), nullable=True))
    _fill(op.get_bind())
    op.create_index(op.f("ix_jobs_finished_at_s"), "jobs", ["finished_at_s"])
    op.create_index(op.f("ix_idempotency_keys_job_id"), "idempotency_keys", ["job_id"])
    op.create_index(op.f("ix_tokens_job_id"), "tokens", ["job_id"])
    op.execute(f"DELETE FROM tokens WHERE job_id IN (SELECT id FROM jobs WHERE {_ENDED})")  # noqa: S608  a constant


def _fill(connection: sa.Connection) -> None:
    """Copy the ends out of the JSON, here and not by the database: not every one reads an infinite number in it."""
    jobs = sa.table("jobs", sa.column("id"), sa.column("progress"), sa.column("finished_at_s"))
    rows = connection.execute(sa.select(jobs.c.id, jobs.c.progress).where(sa.text(_ENDED)))
    ends = [{"job_id": row.id, "at_s": json.loads(row.progress).get("finished_at_s")} for row in rows]
    if ends:
        is_it = jobs.c.id == sa.bindparam("job_id")
        connection.execute(sa.update(jobs).where(is_it).values(finished_at_s=sa.bindparam("at_s")), ends)


def downgrade() -> None:
    """Remove the column and the indexes."""
    op.drop_index(op.f("ix_tokens_job_id"), "tokens")
    op.drop_index(op.f("ix_idempotency_keys_job_id"), "idempotency_keys")
    op.drop_index(op.f("ix_jobs_finished_at_s"), "jobs")
    op.drop_column("jobs", "finished_at_s")
