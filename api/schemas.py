"""What travels over REST: requests refuse unknown fields and unbounded values, views carry units in their names.

Instants are seconds since the Unix epoch (`_at_s`), durations seconds (`_s`).
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
KIND_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
TYPE_PATTERN = r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"
LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([-_./A-Za-z0-9]*[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^[^\u0000-\u001f\u007f]*$"
TEXT_PATTERN = r"^[^\u0000]*$"  # a program's arguments are C strings: anything but NUL

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
Kind = Annotated[str, StringConstraints(pattern=KIND_PATTERN, max_length=127)]
TypeName = Annotated[str, StringConstraints(pattern=TYPE_PATTERN, max_length=63)]
Argument = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$", max_length=127)]
VariableValue = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)]
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN, max_length=63)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE_PATTERN, max_length=127)]
ObjectiveName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]
StepsPerSecond = Annotated[float, Field(gt=1e-9, lt=1e9)]


class _Request(BaseModel):
    """A request body: no unknown fields, no conversions, no NaN or infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _View(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True)


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class JobSubmit(_Request):
    """A job to run: a catalogue kind, or a program of your own (`argv`), or both."""

    model_config = _example(
        name="first",
        argv=["python", "/home/ann/train.py"],
        total_steps=5000,
        scale_factor=1,
        tier="gold",
        weight=1.0,
        env={"SEED": "7"},
        labels={"project": "vision"},
        throughputs={"avx512": 12.5},
    )

    kind: Kind | None = Field(
        None,
        description="What determines the speed: a catalogue name, or `user/name` with your own user."
        " Default: `user/` and the job's name, or a digest of argv.",
    )
    argv: list[Argument] | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Program and arguments; never a shell line. Catalogue kinds bring theirs.",
    )
    name: Name | None = Field(None, description="For people; need not be unique.")
    total_steps: int = Field(ge=1, le=10**12, description="Training steps until the job is complete.")
    scale_factor: int = Field(
        1, ge=1, le=1024, description="Accelerators (all of one type) that the gang needs at once."
    )
    tier: Name | None = Field(None, description="One of your tiers; default: your first.")
    weight: float = Field(1.0, ge=1e-3, le=1e3, description="Relative to your other jobs in the tier.")
    deadline_at_s: float | None = Field(None, ge=0, le=1e11, description="Seconds since the Unix epoch.")
    env: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=128,
        description="Environment of every rank; names beginning with GAVEL_ are taken.",
    )
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=32)
    throughputs: dict[TypeName, StepsPerSecond] = Field(
        default_factory=dict,
        max_length=64,
        description="Known speed of the whole gang by accelerator type, in steps per second; it is measured anyway.",
    )
    preemptible: bool = True
    cpu_cores: int = Field(1, ge=1, le=4096)
    memory_bytes: int = Field(0, ge=0, le=1 << 50)

    @model_validator(mode="after")
    def _says_what_to_run(self) -> Self:
        if self.kind is None and self.argv is None:
            raise ValueError("give argv, or kind with a name of GET /v1/catalogue")
        return self


class ShownState(StrEnum):
    """What users see of a job's state."""

    QUEUED = "QUEUED"  # has not run yet
    PROFILING = "PROFILING"  # holds a lease to be measured
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"  # checkpointed and waiting again; not an error
    LOST = "LOST"  # its node or supervisor went away; runs again by itself
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobView(_View):
    """A job and how far it is. `steps_done` is durable, `steps_reported` provisional."""

    id: str
    name: str
    kind: str
    user: str
    tier: str
    state: ShownState
    core_state: str
    reason: str
    message: str
    attempt: int
    token: int
    version: int
    argv: list[str]
    labels: dict[str, str]
    steps_done: int
    steps_reported: int
    total_steps: int
    scale_factor: int
    weight: float
    preemptible: bool
    deadline_at_s: float | None
    submitted_at_s: float
    started_at_s: float | None
    finished_at_s: float | None
    jct_s: float | None = Field(description="Job completion time: from submission to the end; null while it lives.")
    rho: float | None = Field(
        description="Finish-time fairness: time since submission, over that of the done steps on a 1/n share."
    )
    preemptions: int
    received_s: dict[str, float] = Field(description="Wall time held, by accelerator type.")
    rounds_received: dict[str, int]
    metrics: dict[str, float]
    exit_code: int | None
    log_tail: str
    accelerator_type: str | None = Field(description="Where it runs now.")
    worker_ids: list[str]


class JobList(_View):
    """One page, newest first. `next_cursor` null: this was the last."""

    items: list[JobView]
    next_cursor: str | None


class EventView(_View):
    """One entry of a job's story; `kind` is a noun with a verb (`lease.extended`)."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None


class EventList(_View):
    """Events oldest first; ask again with `after=next_after`."""

    items: list[EventView]
    next_after: int


class LeaseView(_View):
    """The right of one gang to run on workers until an instant."""

    job_id: str
    token: int
    accelerator_type: str
    worker_ids: list[str]
    is_profiling: bool
    expires_at_s: float


class RoundView(_View):
    """One round. `solver_outcome` is null in lists, where only plans are read."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    solver_outcome: str | None
    leases: list[LeaseView]


class RoundList(_View):
    """Rounds newest first; `next_before` null: no older ones."""

    items: list[RoundView]
    next_before: int | None


class CertificateView(_View):
    """What was checked of the allocation: largest violated constraint, distance to the dual bound if known."""

    primal_violation: float
    dual_gap: float | None


class AllocationRow(_View):
    """One job: the time fractions the policy wants, and the part of its time since submission it has had, by type."""

    job_id: str
    name: str
    kind: str
    user: str
    tier: str
    target: list[float]
    received: list[float]
    note: str = Field("", description="What the policy has to say of this job: a deadline that cannot be met, say.")


class AllocationView(_View):
    """The newest allocation as a matrix; `target` and `received` follow the order of `types`."""

    round_index: int
    policy: str
    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    certificate: CertificateView
    types: list[str]
    capacity: dict[str, int] = Field(description="Workers by accelerator type.")
    rows: list[AllocationRow]


class ThroughputView(_View):
    """What is believed of one job kind at one scale factor on one accelerator type."""

    kind: str
    scale_factor: int
    accelerator_type: str
    steps_per_s: float
    relative_error: float = Field(description="One standard deviation of the logarithm of steps_per_s.")
    source: str = Field(description="measured, stated, inferred or unknown")
    measurements: int


class ThroughputList(_View):
    """The estimator's table, sorted by kind, scale factor and type."""

    types: list[str]
    items: list[ThroughputView]


class NodeView(_View):
    """A machine that holds workers."""

    name: str
    cpu_cores: int
    memory_bytes: int
    region: str


class WorkerView(_View):
    """One accelerator, and the job that holds it now."""

    id: str
    node: str
    accelerator_type: str
    price_usd_per_hour: float
    shares_core: bool
    busy: bool
    job_id: str | None


class ClusterView(_View):
    """Every node and worker, as last seen by the scheduler; empty before its first tick."""

    nodes: list[NodeView]
    workers: list[WorkerView]
    capacity: dict[str, int] = Field(description="Workers by accelerator type.")


class TierPut(_Request):
    """A tier's rules."""

    model_config = _example(weight=2.0, objective="fairness", guarantee=0.25)

    weight: float = Field(1.0, ge=1e-3, le=1e3, description="Share of the cluster, relative to the other tiers.")
    objective: ObjectiveName = Field("fairness", description="Objective inside the tier; one with a target curve.")
    guarantee: float = Field(
        0.0, ge=0, le=1, description="Fraction of every accelerator type the tier can always reach."
    )


class TierView(_View):
    """A tier; `version` is its ETag."""

    name: str
    weight: float
    objective: str
    guarantee: float
    version: int


class TierList(_View):
    """Sorted by name."""

    items: list[TierView]


class UserPut(_Request):
    """The tiers a user may submit to; the first is the default."""

    model_config = _example(tiers=["gold", "default"])

    tiers: list[Name] = Field(min_length=1, max_length=64)


class UserView(_View):
    """A user and its tiers."""

    name: str
    tiers: list[str]


class UserList(_View):
    """Sorted by name."""

    items: list[UserView]


class TokenCreate(_Request):
    """What a new token may do."""

    scope: Literal["user", "operator"] = "user"


class TokenCreated(_View):
    """A new bearer token: shown once, only its digest is kept."""

    user: str
    scope: str
    token: str


class CatalogueEntry(_View):
    """A job kind that comes with Gavel, and the program it runs."""

    name: str
    description: str
    argv: list[str]


class CatalogueList(_View):
    """Sorted by name."""

    items: list[CatalogueEntry]


class PolicyView(_View):
    """A policy that can be configured. `parameters` by name, with their defaults as text."""

    name: str
    formula: str
    source: str
    parameters: dict[str, str]


class PolicyList(_View):
    """Cluster-wide policies, and the objectives a tier may have."""

    current: str
    items: list[PolicyView]
    tier_objectives: dict[str, str]


class Health(_View):
    """The process answers (`ok`); ready also means that the store answers and the scheduler is alive."""

    status: str
