"""The part of the store in memory that holds jobs, their events, and the audit log."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gavel.errors import KeyReused
from gavel.ports import AuditEntry, JobEdit, JobEvent, Snapshot, Submitted
from gavel.store.rules import (
    JobIds,
    check_alive,
    check_limit,
    check_limits,
    edited,
    new_jobs,
    no_job,
    request_records,
    unmet,
)
from gavel.types import Job, JobId, JobSpec, JobState

AUDIT_MAX = 10_000  # entries; a long simulation decides more than memory should hold


class JobsInMemory:
    """Jobs in dictionaries; each change of a job makes the next snapshot a new one."""

    def __init__(self, ids: JobIds) -> None:
        self._ids = ids
        self._jobs_per_tier: dict[str, int] = {}  # of tiers that have a limit
        self._jobs: dict[JobId, Job] = {}
        self._active: dict[JobId, Job] = {}
        self._keys: dict[tuple[str, str], tuple[str, JobId]] = {}
        self._events: dict[JobId, list[JobEvent]] = {}
        self._audit: deque[AuditEntry] = deque(maxlen=AUDIT_MAX)
        self._decided = 0
        self._sequence = 0
        self._snapshot: Snapshot | None = None

    def _put_job(self, job: Job) -> None:
        self._jobs[job.id] = job
        if job.state.is_terminal:
            self._active.pop(job.id, None)
        else:
            self._active[job.id] = job
        self._snapshot = None

    def _add_made(self, specs: Sequence[JobSpec], now_s: float) -> None:
        for job in new_jobs(specs, self._ids, now_s, waits_for=(), is_array=False):
            self._put_job(job)
            self._add_event(JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted"))

    def _add_event(self, event: JobEvent) -> None:
        self._sequence += 1
        self._events.setdefault(event.job_id, []).append(replace(event, sequence=self._sequence))

    def _add_audit(self, entry: AuditEntry) -> None:
        self._decided += 1
        self._audit.append(replace(entry, sequence=self._decided))

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Store job, event and idempotency key (one namespace per user).

        Raises KeyReused, InvalidRequest, LimitReached.
        """
        if key is not None and (spec.user, key) in self._keys:
            earlier_hash, job_id = self._keys[spec.user, key]
            if earlier_hash != body_hash:
                raise KeyReused(f"key {key!r} was used for job {job_id} with another body; choose a new key")
            return Submitted(job=self._jobs[job_id], created=False)
        states = {job_id: self._jobs[job_id].state for job_id in spec.after if job_id in self._jobs}
        waits_for = unmet(set(spec.after), states)
        self._check_limits(spec)
        (job,) = new_jobs([spec], self._ids, now_s, waits_for=waits_for, is_array=False)
        self._put_job(job)
        self._add_event(JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted"))
        if key is not None:
            self._keys[spec.user, key] = (body_hash, job.id)
        return Submitted(job=job, created=True)

    def _check_limits(self, spec: JobSpec) -> None:
        if self._jobs_per_tier:
            tiers = Counter(job.spec.tier for job in self._active.values())
            check_limits([spec], {}, tiers, per_user=None, per_tier=self._jobs_per_tier)

    def request_cancel(self, job_id: JobId, *, now_s: float, by: str = "") -> Job:
        """Store the request to cancel the job; idempotent. Raises NotFound, Conflict for one that ended otherwise."""
        job = self.job(job_id)
        if job.state is JobState.CANCELLED:
            return job
        check_alive(job, "cancelled")
        if job.cancel_requested:
            return job
        return self._record_request(replace(job, cancel_requested=True), "cancel.requested", now_s, by)

    def request_pause(self, job_id: JobId, *, is_paused: bool, now_s: float, by: str = "") -> Job:
        """Store the request to pause or resume a job; idempotent. Raises NotFound, Conflict when the job has ended."""
        job = self.job(job_id)
        check_alive(job, "paused" if is_paused else "resumed")
        if job.pause_requested is is_paused:
            return job
        kind = "pause.requested" if is_paused else "job.resumed"
        return self._record_request(replace(job, pause_requested=is_paused), kind, now_s, by)

    def edit_job(
        self, job_id: JobId, edit: JobEdit, *, expected_version: int | None, now_s: float, by: str = ""
    ) -> Job:
        """Change what a user may change. Raises NotFound, StaleVersion, Conflict when the job has ended."""
        job = self.job(job_id)
        check_alive(job, "changed")
        spec, before, after = edited(job, edit, expected_version)
        if spec == job.spec:
            return job
        return self._record_request(replace(job, spec=spec), "job.edited", now_s, by, before, after)

    def _record_request(
        self,
        changed: Job,
        kind: str,
        now_s: float,
        by: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Job:
        job = replace(changed, version=changed.version + 1)
        self._put_job(job)
        event, entry = request_records(job, kind, now_s, by, before, after or {})
        self._add_event(event)
        self._add_audit(entry)
        return job

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""
        if job_id not in self._jobs:
            raise no_job(job_id)
        return self._jobs[job_id]

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Return a job's events (the cluster's: "") with sequence > `after`, oldest first; limit 1..1000."""
        check_limit(limit, 1000)
        return tuple(event for event in self._events.get(job_id, ()) if event.sequence > after)[:limit]

    def audit(
        self, *, subject: str | None = None, user: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Return the audit entries of a subject or a user (None: any), newest first; limit 1..200."""
        check_limit(limit, 200)
        fit = (
            entry
            for entry in reversed(self._audit)
            if subject in (None, entry.subject)
            and user in (None, entry.user)
            and (before is None or entry.sequence < before)
        )
        return tuple(fit)[:limit]
