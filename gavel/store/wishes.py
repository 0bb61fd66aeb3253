"""What users wish of their jobs, in SQL: submit, cancel, pause, change. The scheduler never writes these columns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import bindparam, delete, insert, update

from gavel.ports import AuditEntry, JobEdit, JobEvent, JobFilter
from gavel.store import codec, queries
from gavel.store.audit import add_audit
from gavel.store.rules import ACTIVE, check_alive, edited, wish_told
from gavel.store.schema import EventRow, JobLabelRow, JobRow
from gavel.store.writer import Transaction
from gavel.types import Job, JobId, JobState


def request_cancel(tx: Transaction, job_id: JobId, now_s: float, by: str) -> Job:
    """The job with the wish recorded; unchanged if it was there, or the job is cancelled. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    if job.state is JobState.CANCELLED:
        return job
    check_alive(job, "cancelled")
    if job.cancel_requested:
        return job
    return _wish(tx, replace(job, cancel_requested=True), "cancel.requested", now_s, by)


def request_cancel_all(
    tx: Transaction, where: JobFilter, keep: Sequence[JobId], now_s: float, by: str
) -> tuple[JobId, ...]:
    """The unfinished jobs that fit, but those to keep: each now carries the wish."""
    alive = replace(where, states=tuple(state for state in ACTIVE if where.states is None or state in where.states))
    found = [job for job in queries.all_jobs(tx.connection, alive) if job.id not in set(keep)]
    wished = [replace(job, cancel_requested=True) for job in found if not job.cancel_requested]
    _wish_all(tx, wished, "cancel.requested", now_s, by)
    return tuple(job.id for job in found)


def request_pause(tx: Transaction, job_id: JobId, is_paused: bool, now_s: float, by: str) -> Job:
    """The job with the wish to pause or go on. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    check_alive(job, "paused" if is_paused else "resumed")
    if job.pause_requested is is_paused:
        return job
    kind = "pause.requested" if is_paused else "job.resumed"
    return _wish(tx, replace(job, pause_requested=is_paused), kind, now_s, by)


def edit_job(tx: Transaction, job_id: JobId, edit: JobEdit, expected_version: int | None, now_s: float, by: str) -> Job:
    """The job with the changes. Raises NotFound, StaleVersion, Conflict."""
    job = queries.job(tx.connection, job_id)
    check_alive(job, "changed")
    spec, before, after = edited(job, edit, expected_version)
    if spec == job.spec:
        return job
    new = replace(job, spec=spec, version=job.version + 1)
    row = {"spec": codec.dump(spec), "version": new.version, "change": tx.change}
    tx.connection.execute(update(JobRow).where(JobRow.id == job_id).values(row))
    if spec.labels != job.spec.labels:
        tx.connection.execute(delete(JobLabelRow).where(JobLabelRow.job_id == job_id))
        add_labels(tx, [new])
    _tell(tx, [wish_told(new, "job.edited", now_s, by, before, after)])
    return new


def add_events(tx: Transaction, events: Iterable[JobEvent]) -> None:
    """Append to the stories of jobs."""
    rows = [
        {
            "job_id": event.job_id,
            "at_s": event.at_s,
            "kind": event.kind,
            "message": codec.plain_text(event.message),
            "round_index": event.round_index,
        }
        for event in events
    ]
    if rows:
        tx.connection.execute(insert(EventRow), rows)


def add_labels(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Labels of new or changed jobs, for filtering."""
    labels = [
        {"job_id": job.id, "name": name, "value": value} for job in jobs for name, value in job.spec.labels.items()
    ]
    if labels:
        tx.connection.execute(insert(JobLabelRow), labels)


def _wish(tx: Transaction, wished: Job, kind: str, now_s: float, by: str) -> Job:
    (job,) = _wish_all(tx, [wished], kind, now_s, by)
    return job


def _wish_all(tx: Transaction, wished: Sequence[Job], kind: str, now_s: float, by: str) -> list[Job]:
    """The jobs, stored with their wishes and one version on."""
    jobs = [replace(job, version=job.version + 1) for job in wished]
    rows = [
        {
            "job_id": job.id,
            "new_version": job.version,
            "wants_cancel": job.cancel_requested,
            "wants_pause": job.pause_requested,
        }
        for job in jobs
    ]
    if rows:
        tx.connection.execute(_UPDATE_WISHES.values(change=tx.change), rows)
    _tell(tx, [wish_told(job, kind, now_s, by, None, {}) for job in jobs])
    return jobs


_UPDATE_WISHES = (
    update(JobRow.__table__)  # type: ignore[arg-type]
    .where(JobRow.id == bindparam("job_id"))
    .values(
        cancel_requested=bindparam("wants_cancel"),
        pause_requested=bindparam("wants_pause"),
        version=bindparam("new_version"),
    )
)


def _tell(tx: Transaction, told: Sequence[tuple[JobEvent, AuditEntry]]) -> None:
    add_events(tx, [event for event, _ in told])
    add_audit(tx, [entry for _, entry in told])
