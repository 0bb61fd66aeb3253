"""What the rooms ask of each other: one small protocol each.

A port's fake ships beside its real implementation and passes the same conformance suite.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    EphemeralResource,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    Measurement,
    Observation,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    User,
    WorkerId,
)


class Clock(Protocol):
    """Time, real or virtual."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch (simulated: since the start)."""

    def wait(self, until_s: float) -> None:
        """Return at `until_s`, or earlier when `wake` is called."""

    def wake(self) -> None:
        """End the wait in progress, or the next one. Safe from any thread."""


class Policy(Protocol):
    """States an objective over an allocation problem."""

    @property
    def name(self) -> str:
        """The name it is loaded by."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation; raises SolveFailed or InvalidProblem."""


class PolicyRunner(Protocol):
    """Runs policies with limits. `policy` is a name with parameters: `max_min_fairness?time_limit_s=5`."""

    def warm(self) -> bool:
        """Begin to get ready if that has not happened yet; True once an allocation can be asked for."""

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """A checked allocation within the limit; raises SolveFailed (also on time-out, memory limit or crash)."""

    def close(self) -> None:
        """End whatever the runner started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputEstimate:
    """What is believed of one (job kind, scale factor, accelerator type), alone or beside a partner on one worker.

    `stated_by` is what users said it would be; `refused` counts reports of impossible progress that nobody believed.
    """

    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    steps_per_s: float
    relative_error: float  # one standard deviation of log(steps/s)
    source: str  # "measured", "completed" (from others, within 10 %), "stated", "inferred" (roughly) or "unknown"
    measurements: int = 0
    partner: str | None = None
    placement: str = "consolidated"
    stated_by: Mapping[str, float] = field(default_factory=dict)
    refused: int = 0

    @property
    def is_measured(self) -> bool:
        """True once at least one representative measurement counted."""
        return self.source == "measured"

    @property
    def interval_steps_per_s(self) -> tuple[float, float]:
        """Holds the truth nine times in ten."""
        factor = math.exp(1.645 * self.relative_error)
        return self.steps_per_s / factor, self.steps_per_s * factor


class ThroughputEstimator(Protocol):
    """Learns throughput per job kind, scale factor and accelerator type."""

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """One estimate for each of `types`, in order; always finite and positive."""

    def learn(self, measurements: Sequence[Measurement]) -> "ThroughputEstimator":
        """A new estimator that also knows these; repeated or out-of-order measurements change nothing."""

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything learned so far, sorted by kind, scale factor and type."""


# --- the cluster ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResources:
    """Create, resize or delete (capacity 0) ephemeral resources, all in one transaction."""

    resources: tuple[EphemeralResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang:
    """Submit a gang's tasks; each requires its gang's ephemeral resource and its worker, and waits for both.

    Refused as stale if a gang of the job with the same or a newer token is known: launching twice is harmless.
    """

    job_id: JobId
    token: int
    user: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]  # rank i runs on worker_ids[i]
    resource: str  # the name each task requires one unit of
    lease_expires_at_s: float
    start_step: int
    total_steps: int
    checkpoint: str | None  # name of the accepted checkpoint to restore
    job_token: str = ""  # bearer token of scope JOB, for applications that steer their own resources


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    """Move a gang's lease end, in place."""

    job_id: JobId
    token: int
    expires_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGang:
    """Ask a gang to checkpoint and stop now; raises the fence to token + 1."""

    job_id: JobId
    token: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetGang:
    """The end of this gang is committed: drop what is kept of it (its log stays)."""

    job_id: JobId
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCheckpoint:
    """The store accepted this checkpoint: it is current, older ones of the job may be deleted."""

    job_id: JobId
    checkpoint: str


Instruction = SetResources | LaunchGang | ExtendLease | StopGang | ForgetGang | KeepCheckpoint


class ClusterBackend(Protocol):
    """A cluster that obeys instructions. Every call is idempotent and refuses older tokens."""

    def observe(self) -> Observation:
        """One consistent view; raises BackendUnavailable."""

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry them out in order; a stale one is ignored. Raises BackendUnavailable if nothing could be done."""

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Log bytes from `offset` (bytes since the job's first line) and the offset to ask for next."""

    def close(self) -> None:
        """Let go of the cluster; gangs go on to the end of their leases."""


# --- the store --------------------------------------------------------------------------------------------------


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
