"""The nouns of Gavel: frozen, keyword-only, each quantity with its unit last in its name.

Instants end in `_at_s` (seconds since the Unix epoch; simulated time starts at 0), durations in `_s`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

JobId = str
AcceleratorType = str
WorkerId = str
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that can hold workers."""

    name: str
    cpu_cores: int = 1
    memory_bytes: int = 0
    region: str = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One accelerator on a node. `shares_core` says that another worker uses the same physical core."""

    id: WorkerId
    node: str
    accelerator_type: AcceleratorType
    price_usd_per_hour: float = 1.0
    shares_core: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Every node and worker there is now."""

    nodes: tuple[Node, ...] = ()
    workers: tuple[Worker, ...] = ()

    @property
    def accelerator_types(self) -> tuple[AcceleratorType, ...]:
        """Names of the accelerator types, sorted."""
        return tuple(sorted({worker.accelerator_type for worker in self.workers}))

    def capacity_workers(self) -> dict[AcceleratorType, int]:
        """Number of workers of each accelerator type."""
        return {t: sum(w.accelerator_type == t for w in self.workers) for t in self.accelerator_types}


class JobMode(StrEnum):
    """What a job is for."""

    TRAINING = "training"


class JobState(StrEnum):
    """The core states; what users see is derived from these plus the last reason."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """True once nothing can happen to the job any more."""
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a user asked for; never changes. `kind` names only what determines speed (model, batch size).

    `argv` is never a shell line. `throughput_steps_per_s`: what the user states per accelerator type, for the gang.
    """

    kind: str
    user: str
    tier: str
    argv: tuple[str, ...]
    total_steps: int
    mode: JobMode = JobMode.TRAINING
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    scale_factor: int = 1
    weight: float = 1.0
    deadline_at_s: float | None = None
    preemptible: bool = True
    cpu_cores: int = 1
    memory_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    throughput_steps_per_s: Mapping[AcceleratorType, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A submitted job and how far it is.

    `steps_done` counts steps up to the last accepted checkpoint or the verified end; `steps_reported` is provisional.
    `token` is the token of the newest gang that was launched (0: none yet); tokens only grow.
    `received_s` is wall time held per accelerator type; `isolated_time_s` what the done steps would have taken on a
    1/n share of the cluster (Themis' finish-time fairness); `isolated_steps` is the same in steps of an unclipped equal
    share, so that a better throughput estimate corrects it. `received_s` is accounted up to `accounted_until_s`.
    """

    id: JobId
    spec: JobSpec
    state: JobState = JobState.QUEUED
    submitted_at_s: float = 0.0
    steps_done: int = 0
    steps_reported: int = 0
    attempt: int = 0
    token: int = 0
    version: int = 1
    checkpoint: str | None = None
    report_sequence: int = 0
    cancel_requested: bool = False
    reason: str = "PendingEvaluation"
    message: str = ""
    preemptions: int = 0
    received_s: Mapping[AcceleratorType, float] = field(default_factory=dict)
    rounds_received: Mapping[AcceleratorType, int] = field(default_factory=dict)
    isolated_steps: float = 0.0
    isolated_time_s: float = 0.0
    accounted_until_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    started_at_s: float | None = None
    finished_at_s: float | None = None
    exit_code: int | None = None
    log_tail: str = ""

    @property
    def steps_remaining(self) -> int:
        """Steps that no accepted checkpoint covers yet."""
        return max(0, self.spec.total_steps - self.steps_done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A group of users with an objective of its own. `guarantee` is a fraction of every accelerator type, in [0, 1]."""

    name: str
    weight: float = 1.0
    objective: str = "fairness"
    guarantee: float = 0.0
    parent: str | None = None
    version: int = 1


class Scope(StrEnum):
    """What a bearer token may do."""

    OPERATOR = "operator"
    USER = "user"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who holds a token. `job_id` is set for tokens of scope JOB only."""

    user: str
    scope: Scope
    tiers: tuple[str, ...] = ()
    job_id: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user and the tiers it may submit to; the first is the default."""

    name: str
    tiers: tuple[str, ...]


Combination = tuple[int, ...]
"""Indices into `AllocationProblem.job_ids`: one job, or a packed pair of one scale factor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationProblem:
    """Everything that a policy may know. n jobs in order of arrival, c combinations, m accelerator types, k tiers.

    `throughput_steps_per_s[r, i, j]` is the rate of member i of combination r on type j, for the whole gang; 0 where it
    cannot run, and for the absent second member.
    """

    now_s: float
    round_duration_s: float
    job_ids: tuple[JobId, ...]
    combinations: tuple[Combination, ...]
    accelerator_types: tuple[AcceleratorType, ...]
    throughput_steps_per_s: FloatArray  # (c, 2, m)
    capacity_workers: IntArray  # (m,)
    price_usd_per_hour: FloatArray  # (m,)
    scale_factor: IntArray  # (n,)
    weight: FloatArray  # (n,)
    steps_remaining: FloatArray  # (n,)
    age_s: FloatArray  # (n,) since submission
    attained_service_s: FloatArray  # (n,) accelerator-seconds held so far
    isolated_time_s: FloatArray  # (n,) what the done steps would have taken on a 1/n share
    deadline_at_s: FloatArray  # (n,) +inf: none
    tiers: tuple[Tier, ...]
    tier_of_job: IntArray  # (n,) index into tiers
    users: tuple[str, ...]  # (n,)
    cpu_cores: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,) of the whole gang; (0,): none stated
    memory_bytes: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,) of the whole gang; (0,): none stated
    cluster_cpu_cores: float = math.inf  # +inf: not known, limits nobody
    cluster_memory_bytes: float = math.inf
    warm_start: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was checked of an allocation: largest violated constraint, and the distance to the dual bound if known."""

    primal_violation: float
    dual_gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """Fractions of time. `time_fraction[r, j]` in [0, 1]: combination r on accelerator type j; rows sum to <= 1.

    `notes` are remarks on single jobs, such as a deadline that cannot be met.
    """

    combinations: tuple[tuple[JobId, ...], ...]
    accelerator_types: tuple[AcceleratorType, ...]
    time_fraction: FloatArray  # (c, m)
    certificate: Certificate
    policy: str
    solver: str
    solve_time_s: float = 0.0
    is_fallback: bool = False
    notes: tuple[tuple[JobId, str], ...] = ()
    warm_start: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of a gang to run on workers until an instant. A worker holds one lease, a job one token."""

    job_id: JobId
    token: int
    combination: tuple[JobId, ...]
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    round_index: int
    expires_at_s: float
    is_profiling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round's leases. Immutable; executing it twice or late does no harm, since receivers refuse older tokens."""

    round_index: int
    parent_round_index: int
    starts_at_s: float
    duration_s: float
    leases: tuple[Lease, ...]
    policy: str
    allocation_digest: str

    @property
    def ends_at_s(self) -> float:
        """The instant at which the round's leases end."""
        return self.starts_at_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundRecord:
    """A round as kept, with all to decide it again. `owed_rounds`: rounds promised minus planned, this one included.

    With the published planner it holds the rounds received since the last solve instead.
    """

    plan: RoundPlan
    problem: AllocationProblem
    allocation: Allocation
    owed_rounds: Mapping[tuple[JobId, AcceleratorType], float] = field(default_factory=dict)
    solver_outcome: str = "solved"


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralResource:
    """A named, leased capacity on a node (ESCHER, SoCC '22, section 4); key (owner, name, node)."""

    name: str
    node: str
    capacity: int
    owner: str
    lease_expires_at_s: float
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Steps of a gang over wall seconds. `is_representative`: every core it used was as busy as it can be by design."""

    job_id: JobId
    token: int
    sequence: int
    user: str
    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    steps: int
    seconds: float
    partner: str | None = None
    placement: str = "consolidated"
    is_representative: bool = True
    stated_steps_per_s: float | None = None  # what the job's user said it would be


class ReportKind(StrEnum):
    """What a job's runtime tells the service."""

    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One numbered report of a gang. `steps` and `seconds` are the training done since the report before it."""

    sequence: int
    kind: ReportKind
    step: int
    steps: int = 0
    seconds: float = 0.0
    checkpoint: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_representative: bool = True


class GangState(StrEnum):
    """Where a gang is on its cluster."""

    WAITING = "WAITING"  # its tasks wait for resources
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class GangOutcome(StrEnum):
    """Why a gang ended."""

    EXITED = "exited"  # its program ended by itself, see the exit code
    PREEMPTED = "preempted"  # stopped at its lease's end, or by a stop, after saying so or by a signal
    NOT_STARTED = "not_started"  # its program could not be started
    LOST = "lost"  # its supervisor or node is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class GangExit:
    """How a gang ended. `exit_code` is the first rank's that failed, negative for a signal, 0 if none failed."""

    outcome: GangOutcome
    exit_code: int = 0
    message: str = ""
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSeen:
    """One gang as the backend sees it. `reports` are all those after the last one handed over."""

    job_id: JobId
    token: int
    state: GangState
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    started_at_s: float | None = None
    ended_at_s: float | None = None
    exit: GangExit | None = None
    reports: tuple[Report, ...] = ()
    waiting_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One consistent view of the cluster."""

    observed_at_s: float
    cluster: Cluster
    gangs: tuple[GangSeen, ...] = ()
    resources: tuple[EphemeralResource, ...] = ()
