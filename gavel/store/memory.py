"""`gavel.ports.Store` in dictionaries, for the simulator and for tests: same answers, one thread, nothing durable."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from gavel.errors import Conflict, KeyReused, StaleVersion
from gavel.ports import (
    Changes,
    JobEvent,
    JobFilter,
    Page,
    Snapshot,
    Submitted,
    ThroughputEstimate,
)
from gavel.store.rules import (
    DEFAULT_TIER,
    KEEP_ROUNDS,
    JobIds,
    Progress,
    check_limit,
    check_progress,
    check_round,
    check_token_hash,
    check_user,
    next_tier,
    no_job,
    no_round,
)
from gavel.types import (
    Cluster,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    User,
)


class MemoryStore:
    """A store that forgets. `random_bits` makes the random part of job ids; by default the same in every run."""

    def __init__(self, *, keep_rounds: int = KEEP_ROUNDS, random_bits: Callable[[int], int] | None = None) -> None:
        self._ids = JobIds(random_bits or random.Random(0).getrandbits)  # noqa: S311 - not for secrets
        self._keep_rounds = keep_rounds
        self._version = 0
        self._jobs: dict[JobId, Job] = {}
        self._active: dict[JobId, Job] = {}
        self._keys: dict[tuple[str, str], tuple[str, JobId]] = {}
        self._events: dict[JobId, list[JobEvent]] = {}
        self._sequence = 0
        self._rounds: dict[int, RoundRecord] = {}
        self._cluster = Cluster()
        self._throughputs: tuple[ThroughputEstimate, ...] = ()
        self._tiers = {DEFAULT_TIER.name: DEFAULT_TIER}
        self._users: dict[str, User] = {}
        self._tokens: dict[str, tuple[str, Scope, JobId | None]] = {}
        self._snapshot: Snapshot | None = None

    def close(self) -> None:
        """Nothing to let go of."""

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A consistent view for deciding; the same object as before if nothing was written since."""
        if self._snapshot is None:
            newest = self._newest_round()
            rounds = tuple(self._rounds[index] for index in (newest - 1, newest) if index in self._rounds)
            self._snapshot = Snapshot(
                version=self._version, jobs=dict(self._active), tiers=dict(sorted(self._tiers.items())), rounds=rounds
            )
        return self._snapshot

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes or none; the new version. Raises StaleVersion, NotFound (a job), InvariantViolated."""
        if expected_version != self._version:
            raise StaleVersion(
                f"the scheduler's version is {self._version}, not {expected_version}: another scheduler committed; "
                "take a new snapshot and decide again"
            )
        jobs = self._checked(changes.jobs)
        if changes.round is not None:
            check_round(changes.round.plan, self._newest_round())
        self._version += 1
        for job in jobs.values():
            self._put_job(job)
        for event in changes.events:
            self._add_event(event)
        if changes.round is not None:
            index = changes.round.plan.round_index
            self._rounds[index] = changes.round
            self._rounds.pop(index - self._keep_rounds, None)
        self._cluster = self._cluster if changes.cluster is None else changes.cluster
        self._throughputs = self._throughputs if changes.throughputs is None else changes.throughputs
        self._snapshot = None
        return self._version

    def _checked(self, changed: tuple[Job, ...]) -> dict[JobId, Job]:
        """The jobs to store, with what the scheduler does not own kept; raises NotFound, InvariantViolated."""
        jobs: dict[JobId, Job] = {}
        for job in changed:
            stored = jobs.get(job.id) or self.job(job.id)
            check_progress(job.id, _progress(stored), _progress(job))
            jobs[job.id] = replace(
                job,
                spec=stored.spec,
                submitted_at_s=stored.submitted_at_s,
                cancel_requested=stored.cancel_requested,
                version=stored.version + 1,
            )
        return jobs

    def _put_job(self, job: Job) -> None:
        self._jobs[job.id] = job
        if job.state.is_terminal:
            self._active.pop(job.id, None)
        else:
            self._active[job.id] = job
        self._snapshot = None

    def _add_event(self, event: JobEvent) -> None:
        self._sequence += 1
        self._events.setdefault(event.job_id, []).append(replace(event, sequence=self._sequence))

    def _newest_round(self) -> int:
        return next(reversed(self._rounds), 0)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Job, event and idempotency key (one namespace per user). Raises KeyReused."""
        if key is not None and (spec.user, key) in self._keys:
            earlier_hash, job_id = self._keys[spec.user, key]
            if earlier_hash != body_hash:
                raise KeyReused(f"key {key!r} was used for job {job_id} with another body; choose a new key")
            return Submitted(job=self._jobs[job_id], created=False)
        job = Job(id=self._ids.next(now_s), spec=spec, submitted_at_s=now_s)
        if key is not None:
            self._keys[spec.user, key] = (body_hash, job.id)
        self._put_job(job)
        self._add_event(JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted"))
        return Submitted(job=job, created=True)

    def request_cancel(self, job_id: JobId, *, now_s: float) -> Job:
        """Record the wish; idempotent. Raises NotFound, Conflict when the job has already ended otherwise."""
        job = self.job(job_id)
        if job.state.is_terminal and job.state is not JobState.CANCELLED:
            raise Conflict(f"job {job_id} is already {job.state} and cannot be cancelled")
        if job.state is JobState.CANCELLED or job.cancel_requested:
            return job
        job = replace(job, cancel_requested=True, version=job.version + 1)
        self._put_job(job)
        self._add_event(JobEvent(job_id=job_id, at_s=now_s, kind="cancel.requested"))
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

    # --- rounds and what was seen -------------------------------------------------------------------------------

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Newest first, with round_index < before; limit 1..1000."""
        check_limit(limit, 1000)
        newest_first = (self._rounds[index].plan for index in reversed(self._rounds))
        return tuple(plan for plan in newest_first if before is None or plan.round_index < before)[:limit]

    def round(self, round_index: int | None = None) -> RoundRecord:
        """One round whole; None: the newest. Raises NotFound."""
        index = self._newest_round() if round_index is None else round_index
        if index not in self._rounds:
            raise no_round(round_index)
        return self._rounds[index]

    def cluster(self) -> Cluster:
        """The cluster as last committed by the scheduler; empty before its first tick."""
        return self._cluster

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """The estimator's table as last committed."""
        return self._throughputs

    # --- tenants ------------------------------------------------------------------------------------------------

    def tiers(self) -> tuple[Tier, ...]:
        """Sorted by name."""
        return tuple(sorted(self._tiers.values(), key=lambda tier: tier.name))

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion, NotFound, InvalidRequest."""
        new = replace(tier, version=next_tier(tier, self._tiers, expected_version))
        self._tiers[new.name] = new
        self._snapshot = None
        return new

    def users(self) -> tuple[User, ...]:
        """Sorted by name."""
        return tuple(sorted(self._users.values(), key=lambda user: user.name))

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier, InvalidRequest for none."""
        check_user(user, self._tiers)
        self._users[user.name] = user
        return user

    def add_token(self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float) -> None:
        """Remember the SHA-256 of a new token (hex). Raises InvalidRequest, Conflict if another holder has it."""
        check_token_hash(token_hash)
        if self._tokens.setdefault(token_hash, (user, scope, job_id)) != (user, scope, job_id):
            raise Conflict("this token already belongs to somebody; make a new one")

    def identify(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody."""
        if token_hash not in self._tokens:
            return None
        user, scope, job_id = self._tokens[token_hash]
        tiers = self._users[user].tiers if user in self._users else ()
        return Identity(user=user, scope=scope, tiers=tiers, job_id=job_id)


def _progress(job: Job) -> Progress:
    return Progress(state=job.state, token=job.token, steps_done=job.steps_done, total_steps=job.spec.total_steps)


def _matches(job: Job, where: JobFilter) -> bool:
    return (
        (where.states is None or job.state in where.states)
        and (where.user is None or job.spec.user == where.user)
        and (where.tier is None or job.spec.tier == where.tier)
        and (where.label is None or job.spec.labels.get(where.label[0]) == where.label[1])
    )
