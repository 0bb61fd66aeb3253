"""Rounds, allocations, throughputs and the cluster."""

from pydantic import Field

from api.schemas.fields import View
from api.schemas.resources import ResourceView
from gavel.ports import ThroughputSource


class LeaseView(View):
    """The right of one gang to run on workers until an instant."""

    job_id: str | None = Field(description="null for another user's job.")
    generation: int
    accelerator_type: str
    worker_ids: list[str]
    is_profiling: bool
    plan: str | None = Field(description="Execution plan of the gang; null: its job has none.")
    starts_at_s: float = Field(description="When its round starts, or later in the round if workers became free.")
    expires_at_s: float


class RoundView(View):
    """One round. `solver_outcome` is null in lists, where only plans are read."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    solver_outcome: str | None
    leases: list[LeaseView]


class RoundList(View):
    """Rounds newest first; `next_before` null: no older ones."""

    items: list[RoundView]
    next_before: int | None


class CertificateView(View):
    """What was checked of the allocation: largest violated constraint, distance to the dual bound if known."""

    primal_violation: float
    dual_gap: float | None


class AllocationRow(View):
    """A job, or the mean of many: time fractions that the policy wants and those had since submission, by type."""

    job_id: str
    name: str
    kind: str
    user: str
    tier: str
    target: list[float]
    received: list[float]
    note: str = Field("", description="A remark of the policy on this job, for example a deadline that cannot be met.")
    jobs: int = Field(description="1; of a row that stands for many: their number, `job_id` and `name` are empty then.")


class AllocationView(View):
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
    is_grouped: bool = Field(description="Each row is the mean of the jobs of one kind and tier.")
    jobs: int = Field(description="How many jobs there are rows for, those cut off included.")


class ThroughputView(View):
    """The estimated throughput of one job kind at one scale factor on one accelerator type, with its interval."""

    kind: str
    scale_factor: int
    accelerator_type: str
    steps_per_s: float
    low_steps_per_s: float = Field(description="With the other end: holds the true value with probability 0.9.")
    high_steps_per_s: float
    relative_error: float = Field(description="One standard deviation of the logarithm of steps_per_s.")
    source: ThroughputSource = Field(description=" ".join(f"{each}: {each.sentence}" for each in ThroughputSource))
    is_measured: bool
    measurements: int
    partner: str | None = Field(description="The job kind on the same workers; null: none.")
    placement: str = Field(description="consolidated: on as few nodes as the gang can be; or spread.")
    refused: int = Field(description="Rejected reports: their progress was impossible.")
    accelerator_memory_bytes: int = Field(
        description="The most that a job of the kind was seen to hold on one accelerator; 0: not known."
    )


class UserClaimView(View):
    """A throughput that a user claimed, with what was measured."""

    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    stated_steps_per_s: float
    measured_steps_per_s: float


class ReputationView(View):
    """How accurate a user's claims were; the less accurate, the less the next claim counts."""

    user: str
    user_claims: int
    typical_factor: float = Field(description="The factor by which they were wrong, 1 or more.")
    is_off: bool


class ThroughputList(View):
    """Estimated throughputs of job kinds; lists are sorted by kind, scale factor and type."""

    types: list[str]
    items: list[ThroughputView] = Field(
        description="A kind's own speed: of gangs alone on their workers and on as few nodes as they can be. One entry"
        " for each kind, scale factor and type; also for types on which nothing was measured yet."
    )
    interference: list[ThroughputView] = Field(
        description="What was measured of gangs beside a partner, or spread over nodes."
    )
    user_claims: list[UserClaimView]
    users: list[ReputationView]


class ClusterNodeView(View):
    """A machine that holds workers."""

    name: str
    cpu_cores: int
    memory_bytes: int
    region: str
    labels: dict[str, str]
    problem: str = Field("", description="Why its workers cannot be used now, and what to do; empty if they can.")


class WorkerView(View):
    """One accelerator, and the jobs that hold it now: two, if they share it."""

    id: str
    node: str
    accelerator_type: str
    price_usd_per_hour: float
    shares_core: bool
    memory_bytes: int = Field(description="The accelerator's own memory; 0: not known.")
    busy: bool
    job_ids: list[str | None] = Field(description="Who holds it; null for another user's job.")


class ClusterView(View):
    """Every node and worker, as last seen by the scheduler; empty before its first tick."""

    nodes: list[ClusterNodeView]
    workers: list[WorkerView]
    capacity: dict[str, int] = Field(description="Workers by accelerator type.")
    notes: list[str] = Field(description="What an operator should know of the cluster as a whole.")
    resources: list[ResourceView] = Field(description="Ephemeral resources of applications, by owner, name and node.")
