"""The part of the store in memory that holds jobs, their stories, and the audit log."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from gavel.errors import GavelError, KeyReused
from gavel.ports import AuditEntry, JobEdit, JobEvent, JobFilter, Page, Snapshot, Submitted
from gavel.store.rules import JobIds, check_alive, check_limit, check_limits, edited, new_jobs, no_job, unmet, wish_told
from gavel.types import Job, JobId, JobSpec, JobState

AUDIT_MAX = 10_000  # entries; a long simulation decides more than memory should hold


class JobsInMemory:
    """Jobs in dictionaries; whoever changes one makes the snapshot anew."""

    def __init__(self, ids: JobIds, jobs_per_user: int | None = None) -> None:
        self._ids = ids
        self._jobs_per_user = jobs_per_user
        self._jobs_per_tier: dict[str, int] = {}  # of tiers that have a limit
        self.edition = 0
        self._jobs: dict[JobId, Job] = {}
        self._active: dict[JobId, Job] = {}
        self._keys: dict[tuple[str, str], tuple[str, tuple[JobId, ...]]] = {}
        self._events: dict[JobId, list[JobEvent]] = {}
        self._audit: deque[AuditEntry] = deque(maxlen=AUDIT_MAX)
        self._decided = 0
        self._sequence = 0
        self._snapshot: Snapshot | None = None
        self._written: dict[JobId | int, int] = {}  # job or round -> its last write; the latest last
        self._writes = 0

    def _note_write(self, what: JobId | int) -> None:
        self._writes += 1
        self._written.pop(what, None)
        self._written[what] = self._writes

    def _put_job(self, job: Job) -> None:
        self._note_write(job.id)
        self._jobs[job.id] = job
        if job.state.is_terminal:
            self._active.pop(job.id, None)
        else:
            self._active[job.id] = job
        self._snapshot = None

    def _add_event(self, event: JobEvent) -> None:
        self._sequence += 1
        self._events.setdefault(event.job_id, []).append(replace(event, sequence=self._sequence))

    def _add_audit(self, entry: AuditEntry) -> None:
        self._decided += 1
        self._audit.append(replace(entry, sequence=self._decided))

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Job, event and idempotency key (one namespace per user). Raises as `submit_many`."""
        return self.submit_many([spec], key=key, body_hash=body_hash, now_s=now_s)[0]

    def submit_many(
        self, specs: Sequence[JobSpec], *, key: str | None, body_hash: str, now_s: float, is_array: bool = False
    ) -> tuple[Submitted, ...]:
        """All of them, of one user, or none. Raises KeyReused, InvalidRequest (`after`), LimitReached."""
        earlier = self.submitted(specs[0].user, key, body_hash=body_hash) if key is not None else ()
        if earlier:
            return tuple(Submitted(job=job, created=False) for job in earlier)
        after = {job_id for spec in specs for job_id in spec.after}
        states = {job_id: self._jobs[job_id].state for job_id in after if job_id in self._jobs}
        waits_for = unmet(after, states)
        self._check_limits(specs)
        jobs = new_jobs(specs, self._ids, now_s, waits_for=waits_for, is_array=is_array)
        for job in jobs:
            self._put_job(job)
            self._add_event(JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted"))
        if key is not None:
            self._keys[specs[0].user, key] = (body_hash, tuple(job.id for job in jobs))
        return tuple(Submitted(job=job, created=True) for job in jobs)

    def start_submit(
        self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float
    ) -> "Future[tuple[Submitted, ...]]":
        """The same of one, answered already."""
        answer: Future[tuple[Submitted, ...]] = Future()
        try:
            answer.set_result(self.submit_many([spec], key=key, body_hash=body_hash, now_s=now_s))
        except GavelError as error:
            answer.set_exception(error)
        return answer

    def _check_limits(self, specs: Sequence[JobSpec]) -> None:
        if self._jobs_per_user is None and not self._jobs_per_tier:
            return
        users = Counter(job.spec.user for job in self._active.values())
        tiers = Counter(job.spec.tier for job in self._active.values())
        check_limits(specs, users, tiers, per_user=self._jobs_per_user, per_tier=self._jobs_per_tier)

    def submitted(self, user: str, key: str, *, body_hash: str) -> tuple[Job, ...]:
        """The jobs that this key made before; empty: none. Raises KeyReused for another body."""
        earlier_hash, job_ids = self._keys.get((user, key), (body_hash, ()))
        if earlier_hash != body_hash:
            raise KeyReused(f"key {key!r} was used for job {job_ids[0]} with another body; choose a new key")
        return tuple(self._jobs[job_id] for job_id in job_ids)

    def request_cancel(self, job_id: JobId, *, now_s: float, by: str = "") -> Job:
        """Record the wish; idempotent. Raises NotFound, Conflict when the job has already ended otherwise."""
        job = self.job(job_id)
        if job.state is JobState.CANCELLED:
            return job
        check_alive(job, "cancelled")
        if job.cancel_requested:
            return job
        return self._wish(replace(job, cancel_requested=True), "cancel.requested", now_s, by)

    def request_cancel_all(
        self, where: JobFilter, *, keep: Sequence[JobId] = (), now_s: float, by: str = ""
    ) -> tuple[JobId, ...]:
        """Record the wish for every unfinished job that fits but those to keep; their ids, newest first."""
        found = [job.id for job in reversed(self._active.values()) if _matches(job, where) and job.id not in set(keep)]
        for job_id in found:
            self.request_cancel(job_id, now_s=now_s, by=by)
        return tuple(found)

    def request_pause(self, job_id: JobId, *, is_paused: bool, now_s: float, by: str = "") -> Job:
        """Record the wish to pause or go on; idempotent. Raises NotFound, Conflict when the job has ended."""
        job = self.job(job_id)
        check_alive(job, "paused" if is_paused else "resumed")
        if job.pause_requested is is_paused:
            return job
        kind = "pause.requested" if is_paused else "job.resumed"
        return self._wish(replace(job, pause_requested=is_paused), kind, now_s, by)

    def edit_job(
        self, job_id: JobId, edit: JobEdit, *, expected_version: int | None, now_s: float, by: str = ""
    ) -> Job:
        """Change what a user may change. Raises NotFound, StaleVersion, Conflict when the job has ended."""
        job = self.job(job_id)
        check_alive(job, "changed")
        spec, before, after = edited(job, edit, expected_version)
        if spec == job.spec:
            return job
        return self._wish(replace(job, spec=spec), "job.edited", now_s, by, before, after)

    def _wish(
        self,
        wished: Job,
        kind: str,
        now_s: float,
        by: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Job:
        job = replace(wished, version=wished.version + 1)
        self._put_job(job)
        event, entry = wish_told(job, kind, now_s, by, before, after or {})
        self._add_event(event)
        self._add_audit(entry)
        return job

    def job(self, job_id: JobId) -> Job:
        """Raises NotFound."""
        if job_id not in self._jobs:
            raise no_job(job_id)
        return self._jobs[job_id]

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Newest first; limit 1..200."""
        check_limit(limit, 200)
        found: list[Job] = []
        for job_id, job in reversed(self._jobs.items()):  # ids grow
            if (cursor is None or job_id < cursor) and _matches(job, where):
                if len(found) == limit:
                    return Page(jobs=tuple(found), next_cursor=found[-1].id)
                found.append(job)
        return Page(jobs=tuple(found))

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Number of jobs by (state, tier)."""
        return Counter((job.state, job.spec.tier) for job in self._jobs.values())

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Events of a job (of the cluster: "") with sequence > after, oldest first; limit 1..1000."""
        check_limit(limit, 1000)
        return tuple(event for event in self._events.get(job_id, ()) if event.sequence > after)[:limit]

    def audit(
        self, *, subject: str | None = None, user: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Decisions that touched a subject or a user (None: any), newest first; limit 1..200."""
        check_limit(limit, 200)
        fit = (
            entry
            for entry in reversed(self._audit)
            if subject in (None, entry.subject)
            and user in (None, entry.user)
            and (before is None or entry.sequence < before)
        )
        return tuple(fit)[:limit]


def _matches(job: Job, where: JobFilter) -> bool:
    return (
        (where.states is None or job.state in where.states)
        and (where.user is None or job.spec.user == where.user)
        and (where.tier is None or job.spec.tier == where.tier)
        and (where.label is None or job.spec.labels.get(where.label[0]) == where.label[1])
        and (where.array_id is None or job.spec.array_id == where.array_id)
        and (where.ids is None or job.id in where.ids)
    )
