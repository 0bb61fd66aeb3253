"""User requests in SQL: cancel, pause, resume, change. The scheduler never writes these columns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import bindparam, delete, insert, update

from gavel.ports import AuditEntry, JobEdit, JobEvent, JobFilter, ReservationRule
from gavel.store import codec, queries
from gavel.store.audit import add_audit
from gavel.store.reservations import check_extension
from gavel.store.rules import ACTIVE, check_alive, edited, request_records
from gavel.store.schema import EventRow, JobLabelRow, JobRow
from gavel.store.writer import Transaction
from gavel.types import Job, JobId, JobState


def request_cancel(tx: Transaction, job_id: JobId, now_s: float, by: str) -> Job:
    """Store the request to cancel a job; no change if it has one or is cancelled. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    if job.state is JobState.CANCELLED:
        return job
    check_alive(job, "cancelled")
    if job.cancel_requested:
        return job
    return _record_request(tx, replace(job, cancel_requested=True), "cancel.requested", now_s, by)


def request_cancel_all(
    tx: Transaction, where: JobFilter, keep: Sequence[JobId], now_s: float, by: str
) -> tuple[JobId, ...]:
    """Request to cancel the unfinished jobs that match, except those in `keep`; return the ids of all of them."""
    alive = replace(where, states=tuple(state for state in ACTIVE if where.states is None or state in where.states))
    matches = [job for job in queries.all_jobs(tx.connection, alive) if job.id not in set(keep)]
    changed = [replace(job, cancel_requested=True) for job in matches if not job.cancel_requested]
    _record_requests(tx, changed, "cancel.requested", now_s, by)
    return tuple(job.id for job in matches)


def request_pause(tx: Transaction, job_id: JobId, is_paused: bool, now_s: float, by: str) -> Job:
    """Store the request to pause or resume a job; return the job. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    check_alive(job, "paused" if is_paused else "resumed")
    if job.pause_requested is is_paused:
        return job
    kind = "pause.requested" if is_paused else "job.resumed"
    return _record_request(tx, replace(job, pause_requested=is_paused), kind, now_s, by)


def edit_job(
    tx: Transaction,
    job_id: JobId,
    edit: JobEdit,
    expected_version: int | None,
    now_s: float,
    by: str,
    rule: ReservationRule | None = None,
) -> Job:
    """Change the job and return it. Raises NotFound, StaleVersion, Conflict, InvalidRequest."""
    job = queries.job(tx.connection, job_id)
    check_alive(job, "changed")
    spec, before, after = edited(job, edit, expected_version)
    if edit.longest_s is not None:
        check_extension(tx, rule, job, edit.longest_s, now_s)
    if spec == job.spec:
        return job
    new = replace(job, spec=spec, version=job.version + 1)
    row = {"spec": codec.dump(spec), "version": new.version, "change": tx.change}
    tx.connection.execute(update(JobRow).where(JobRow.id == job_id).values(row))
    if spec.labels != job.spec.labels:
        tx.connection.execute(delete(JobLabelRow).where(JobLabelRow.job_id == job_id))
        add_labels(tx, [new])
    _record(tx, [request_records(new, "job.edited", now_s, by, before, after)])
    return new


def add_events(tx: Transaction, events: Iterable[JobEvent]) -> None:
    """Append events to the history of jobs."""
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
    """Store the labels of new or changed jobs, for filtering."""
    labels = [
        {"job_id": job.id, "name": name, "value": value} for job in jobs for name, value in job.spec.labels.items()
    ]
    if labels:
        tx.connection.execute(insert(JobLabelRow), labels)


def _record_request(tx: Transaction, changed: Job, kind: str, now_s: float, by: str) -> Job:
    (job,) = _record_requests(tx, [changed], kind, now_s, by)
    return job


def _record_requests(tx: Transaction, changed: Sequence[Job], kind: str, now_s: float, by: str) -> list[Job]:
    """Store the jobs with their requests; return them with their new versions."""
    jobs = [replace(job, version=job.version + 1) for job in changed]
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
        tx.connection.execute(_UPDATE_REQUESTS.values(change=tx.change), rows)
    _record(tx, [request_records(job, kind, now_s, by, None, {}) for job in jobs])
    return jobs


_UPDATE_REQUESTS = (
    update(JobRow.__table__)  # type: ignore[arg-type]
    .where(JobRow.id == bindparam("job_id"))
    .values(
        cancel_requested=bindparam("wants_cancel"),
        pause_requested=bindparam("wants_pause"),
        version=bindparam("new_version"),
    )
)


def _record(tx: Transaction, entries: Sequence[tuple[JobEvent, AuditEntry]]) -> None:
    add_events(tx, [event for event, _ in entries])
    add_audit(tx, [entry for _, entry in entries])
