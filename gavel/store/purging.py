"""What the database deletes of ended jobs: by hand, and after their time. Decisions of people and usage stay."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select, update

from gavel.errors import Conflict
from gavel.ports import AuditEntry
from gavel.store import queries
from gavel.store.audit import add_audit
from gavel.store.rules import id_before
from gavel.store.schema import (
    DocumentRow,
    EventRow,
    IdempotencyKeyRow,
    JobLabelRow,
    JobRow,
    MetricPointRow,
    NotificationRow,
    PredictionRow,
    TokenRow,
)
from gavel.store.writer import Transaction
from gavel.types import Job, JobId
from gavel.types.notifications import NotificationState

JOBS_A_PURGE = 200  # little enough that no submit waits for long
KEYS_A_PURGE = 2000


def purge_job(tx: Transaction, job_id: JobId, by: str, now_s: float) -> Job:
    """Delete an ended job with all that is stored of it; return the job. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    if not job.state.is_terminal:
        raise Conflict(f"job {job_id} is {job.state} and cannot be purged; cancel it first")
    delete_jobs(tx, [job_id])
    entry = AuditEntry(
        at_s=now_s,
        by=by or job.spec.user,
        subject=f"job/{job_id}",
        before={"name": job.spec.name, "state": job.state.value},
        after={},
        action="job.purged",
        user=job.spec.user,
    )
    add_audit(tx, [entry])
    return job


def ended_jobs(connection: Connection, before_s: float) -> tuple[JobId, ...]:
    """Return the ids of jobs that ended before the instant, the oldest first, at most JOBS_A_PURGE."""
    ended = select(JobRow.id).where(JobRow.finished_at_s < before_s).order_by(JobRow.finished_at_s)
    return tuple(connection.execute(ended.limit(JOBS_A_PURGE)).scalars())


def forget_keys(tx: Transaction, before_s: float) -> int:
    """Delete the idempotency keys of jobs that were submitted before the instant, at most KEYS_A_PURGE; their number.

    A submit with such a key makes a new job.
    """
    old = select(IdempotencyKeyRow.job_id).where(IdempotencyKeyRow.job_id < id_before(before_s)).limit(KEYS_A_PURGE)
    return tx.connection.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.job_id.in_(old))).rowcount


def delete_jobs(tx: Transaction, job_ids: Sequence[JobId]) -> None:
    """Delete these jobs, which have ended, with all that is stored of them but what waits to be sent."""
    for table in (JobLabelRow, IdempotencyKeyRow, EventRow, PredictionRow, MetricPointRow, TokenRow):
        tx.connection.execute(delete(table).where(table.job_id.in_(job_ids)))
    is_sent = NotificationRow.state != NotificationState.WAITING.value
    tx.connection.execute(delete(NotificationRow).where(is_sent, NotificationRow.job_id.in_(job_ids)))
    tx.connection.execute(delete(JobRow).where(JobRow.id.in_(job_ids)))
    _note_purge(tx)


def _note_purge(tx: Transaction) -> None:
    """Tell every process that its snapshot may hold jobs that are gone."""
    row = {"name": queries.PURGE, "body": str(tx.change).encode()}
    if tx.connection.execute(update(DocumentRow).where(DocumentRow.name == queries.PURGE).values(row)).rowcount == 0:
        tx.connection.execute(insert(DocumentRow), row)
