"""What the API answers about scheduling.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Literal, TypedDict

from gavel.client.answers.jobs import Reason


class InfeasibleType(TypedDict):
    """A mark: jobs of this user, kind and size are not given the accelerator type, until somebody clears it."""

    id: str
    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    evidence: str  # What was seen, such as the line of the log.
    job_id: str  # The job of which it was seen.
    at_s: float


class RoundSummary(TypedDict):
    """The round in force. `renewed_leases` were extended in place, so that the job went on without a restart."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    leases: int
    renewed_leases: int
    profiling_leases: int


class Fallback(TypedDict):
    """The policy that gave no usable allocation, the error, since when, and what is in force instead."""

    policy: str
    error: str
    since_s: float
    instead: str  # `last allocation kept` or `equal share`.


class SolveSummary(TypedDict):
    """How the newest allocation came about."""

    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    fallback: Fallback | None  # null: the allocation is the policy's own.


class WorstJob(TypedDict):
    """The unfinished job with the largest finish-time fairness."""

    id: str
    name: str
    rho: float


class Summary(TypedDict):
    """The cluster at a glance; jobs are yours (an operator's: everybody's)."""

    round: RoundSummary | None  # null before the first.
    solve: SolveSummary | None
    jobs: dict[str, int]  # Unfinished jobs by shown state.
    tiers: dict[str, int]  # Unfinished jobs by tier.
    workers: int
    busy_workers: int
    worst: WorstJob | None
    notes: list[str]  # What an operator should know of the cluster, nodes included.


class PlacedRound(TypedDict):
    """A round on the axis of placements."""

    round_index: int
    starts_at_s: float
    duration_s: float


class PlacementBlock(TypedDict):
    """A job on a worker over consecutive rounds of one generation: a lease that was renewed is one block."""

    worker_id: str
    accelerator_type: str
    job_id: str | None  # null for another user's job; its name and tier are empty.
    name: str
    tier: str
    generation: int
    first_round: int
    last_round: int
    leases: int
    is_profiling: bool


class Placements(TypedDict):
    """Who held which worker in which round; rounds oldest first, blocks by worker and round."""

    rounds: list[PlacedRound]
    worker_ids: list[str]
    workers: int  # How many there are, those left out included.
    blocks: list[PlacementBlock]


class Shares(TypedDict):
    """The part of all workers that each tier's jobs held in each round, oldest first; with the tiers below it."""

    rounds: list[PlacedRound]
    tiers: dict[str, list[float]]
    jobs: dict[str, int]  # Unfinished jobs by tier, everybody's.
    by_weight: dict[str, float]  # Share of the cluster by weights alone, among the tiers with unfinished jobs; by tier.


class QueueItem(TypedDict):
    """A job that waits."""

    position: int | None  # Among the waiting jobs of its tier, by lag and arrival, from 1; null: it goes next.
    id: str
    name: str
    kind: str
    user: str
    tier: str
    state: str
    reason: Reason
    message: str
    priority: int
    scale_factor: int
    submitted_at_s: float
    steps: int
    total_steps: int | None


class Queue(TypedDict):
    """Jobs that wait, tier by tier in their order; yours (an operator's: everybody's)."""

    items: list[QueueItem]
    waiting: int  # How many wait, those of other pages included.
    reasons: dict[str, int]  # How many wait for each reason.


class Policy(TypedDict):
    """A policy that can be configured. `parameters` by name, with their defaults as text."""

    name: str
    choose_when: str  # A sentence; empty for a policy of the operator's own that has none.
    formula: str
    source: str
    parameters: dict[str, str]


class PolicyList(TypedDict):
    """Cluster-wide policies, the objectives a tier may have, and the orders within one user."""

    current: str
    items: list[Policy]
    tier_objectives: dict[str, str]
    within_user: dict[str, str]  # How the jobs of one user may share, by name of the order.
    # Tiers whose objective is `auto`, with the one that the policy in force gives each.
    auto_objectives: dict[str, str]


class AllocationRow(TypedDict):
    """A job, or the mean of many: time fractions that the policy wants and those had since submission, by type."""

    job_id: str
    name: str
    kind: str
    user: str
    tier: str
    target: list[float]
    received: list[float]
    note: str  # A remark of the policy on this job, for example a deadline that cannot be met.
    jobs: int  # 1; of a row that stands for many: their number, `job_id` and `name` are empty then.


class Certificate(TypedDict):
    """What was checked of the allocation: largest violated constraint, distance to the dual bound if known."""

    primal_violation: float
    dual_gap: float | None


class Allocation(TypedDict):
    """The newest allocation as a matrix; `target` and `received` follow the order of `types`."""

    round_index: int
    policy: str
    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    certificate: Certificate
    types: list[str]
    capacity: dict[str, int]  # Workers by accelerator type.
    rows: list[AllocationRow]
    is_grouped: bool  # Each row is the mean of the jobs of one kind and tier.
    jobs: int  # How many jobs there are rows for, those cut off included.


class Lease(TypedDict):
    """The right of one gang to run on workers until an instant."""

    job_id: str | None  # null for another user's job.
    generation: int
    accelerator_type: str
    worker_ids: list[str]
    is_profiling: bool
    plan: str | None  # Execution plan of the gang; null: its job has none.
    starts_at_s: float  # When its round starts, or later in the round if workers became free.
    expires_at_s: float


class Round(TypedDict):
    """One round. `solver_outcome` is null in lists, where only plans are read."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    solver_outcome: str | None
    leases: list[Lease]


class Reputation(TypedDict):
    """How accurate a user's claims were; the less accurate, the less the next claim counts."""

    user: str
    user_claims: int
    typical_factor: float  # The factor by which they were wrong, 1 or more.
    is_off: bool


ThroughputSource = Literal["measured", "completed", "stated", "inferred", "unknown"]
"""Where an estimate of a throughput comes from, the most reliable source first."""


class Throughput(TypedDict):
    """The estimated throughput of one job kind at one scale factor on one accelerator type, with its interval."""

    kind: str
    scale_factor: int
    accelerator_type: str
    steps_per_s: float
    low_steps_per_s: float  # With the other end: holds the true value with probability 0.9.
    high_steps_per_s: float
    relative_error: float  # One standard deviation of the logarithm of steps_per_s.
    # measured: Jobs reported it while they ran there. completed: Other measurements say it, to 10 %. stated: The job's
    # user said it at the submit; nobody has measured it yet. inferred: Other measurements say it roughly; it is
    # measured when a job can run there. unknown: Nothing similar was measured: it is a guess from the hardware's peak
    # rates.
    source: ThroughputSource
    is_measured: bool
    measurements: int
    partner: str | None  # The job kind on the same workers; null: none.
    placement: str  # consolidated: on as few nodes as the gang can be; or spread.
    refused: int  # Rejected reports: their progress was impossible.
    accelerator_memory_bytes: int  # The most that a job of the kind was seen to hold on one accelerator; 0: not known.


class UserClaim(TypedDict):
    """A throughput that a user claimed, with what was measured."""

    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    stated_steps_per_s: float
    measured_steps_per_s: float


class ThroughputList(TypedDict):
    """Estimated throughputs of job kinds; lists are sorted by kind, scale factor and type."""

    types: list[str]
    # A kind's own speed: of gangs alone on their workers and on as few nodes as they can be. One entry for each kind,
    # scale factor and type; also for types on which nothing was measured yet.
    items: list[Throughput]
    interference: list[Throughput]  # What was measured of gangs beside a partner, or spread over nodes.
    user_claims: list[UserClaim]
    users: list[Reputation]


class ClusterNode(TypedDict):
    """A machine that holds workers."""

    name: str
    cpu_cores: int
    memory_bytes: int
    region: str
    labels: dict[str, str]
    problem: str  # Why its workers cannot be used now, and what to do; empty if they can.


class Resource(TypedDict):
    """An ephemeral resource of an application on one node, as of the scheduler's last commit."""

    owner: str
    name: str
    node: str
    capacity: int
    free: int  # Units that no task holds; negative after a shrink.
    generation: int  # Grows with each change of meaning; send it as If-Match.
    lease_expires_at_s: float


class Worker(TypedDict):
    """One accelerator, and the jobs that hold it now: two, if they share it."""

    id: str
    node: str
    accelerator_type: str
    price_usd_per_hour: float
    shares_core: bool
    memory_bytes: int  # The accelerator's own memory; 0: not known.
    busy: bool
    job_ids: list[str | None]  # Who holds it; null for another user's job.


class Cluster(TypedDict):
    """Every node and worker, as last seen by the scheduler; empty before its first tick."""

    nodes: list[ClusterNode]
    workers: list[Worker]
    capacity: dict[str, int]  # Workers by accelerator type.
    notes: list[str]  # What an operator should know of the cluster as a whole.
    resources: list[Resource]  # Ephemeral resources of applications, by owner, name and node.


class CatalogueEntry(TypedDict):
    """A job kind that comes with Gavel, and the program it runs."""

    name: str
    description: str
    argv: list[str]
