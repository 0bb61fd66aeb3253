"""Who keeps what must not be lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gavel.ports.estimator import ThroughputEstimate
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One entry of a job's story. `kind` is a noun with a verb: `lease.extended`. `sequence` grows over all jobs."""

    job_id: JobId
    at_s: float
    kind: str
    message: str = ""
    round_index: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Answer to a submit; `created` is False when the idempotency key had been seen with the same body."""

    job: Job
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """What the scheduler decides on: every job that is not terminal, the tiers, the newest rounds.

    `rounds` holds the newest rounds, oldest first, at most two: the one in force and the one planned ahead.
    `version` grows with each commit of the scheduler and with nothing else.
    """

    version: int
    jobs: Mapping[JobId, Job]
    tiers: Mapping[str, Tier]
    rounds: tuple[RoundRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """What one scheduler commit writes, all or nothing.

    `jobs` replace the scheduler's fields of the stored rows (never spec, nor the cancel wish set by the API meanwhile).
    """

    jobs: tuple[Job, ...] = ()
    events: tuple[JobEvent, ...] = ()
    round: RoundRecord | None = None
    cluster: Cluster | None = None
    throughputs: tuple[ThroughputEstimate, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.jobs or self.events or self.round or self.cluster or self.throughputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list holds; None: any."""

    states: tuple[JobState, ...] | None = None
    user: str | None = None
    tier: str | None = None
    label: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of jobs, newest first, and the cursor of the next (None: this was the last)."""

    jobs: tuple[Job, ...]
    next_cursor: JobId | None = None


class Store(Protocol):
    """Everything durable. A call that returned has been committed."""

    # the scheduler's side
    def snapshot(self) -> Snapshot:
        """A consistent view for deciding."""

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes in one transaction; the new version. Raises StaleVersion, StoreUnavailable."""

    # the API's side
    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Job and event in one transaction. Raises KeyReused."""

    def request_cancel(self, job_id: JobId, *, now_s: float) -> Job:
        """Record the wish; idempotent. Raises NotFound, Conflict when the job has already ended otherwise."""

    def job(self, job_id: JobId) -> Job:
        """Raises NotFound."""

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Newest first."""

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Number of jobs by (state, tier)."""

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Events of a job with sequence > after, oldest first."""

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Newest first, with round_index < before."""

    def round(self, round_index: int | None = None) -> RoundRecord:
        """One round whole; None: the newest. Raises NotFound."""

    def cluster(self) -> Cluster:
        """The cluster as last committed by the scheduler; empty before its first tick."""

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """The estimator's table as last committed."""

    def tiers(self) -> tuple[Tier, ...]:
        """Sorted by name."""

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion."""

    def users(self) -> tuple[User, ...]:
        """Sorted by name."""

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier."""

    def add_token(self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float) -> None:
        """Remember the SHA-256 of a new token (hex)."""

    def identify(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody."""

    def close(self) -> None:
        """Finish what is queued, then let go of the database."""
