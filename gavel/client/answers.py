"""What travels between the client and the service: the API's JSON objects, as they are; /docs explains every field."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Submission(TypedDict, total=False):
    """Fields of a new job; all but `total_steps` may be left out, `argv` for a kind of the catalogue only."""

    kind: str | None
    argv: Sequence[str] | None
    name: str | None
    total_steps: int
    scale_factor: int
    tier: str | None
    weight: float
    deadline_at_s: float | None
    env: Mapping[str, str]
    labels: Mapping[str, str]
    throughputs: Mapping[str, float]
    preemptible: bool
    cpu_cores: int
    memory_bytes: int
    priority: int | None
    max_retries: int
    after: Sequence[str]


class TierLimits(TypedDict, total=False):
    """What a tier may have, and the tier it is below; what is left out is not limited."""

    cap: float
    default_priority: int
    max_jobs: int | None
    accelerator_hours_per_month: float | None
    budget_usd_per_month: float | None
    parent: str | None


class Deadline(TypedDict):
    """Whether a deadline can be met: `yes`, `at_risk`, `no` or `unknown`, with the figures."""

    can_be_met: str
    deadline_at_s: float
    earliest_finish_at_s: float | None
    expected_finish_at_s: float | None
    message: str


class Job(TypedDict):
    """A job and how far it is. `steps_done` is durable, `steps_reported` provisional."""

    id: str
    name: str
    kind: str
    user: str
    tier: str
    state: str
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
    jct_s: float | None
    rho: float | None
    preemptions: int
    received_s: dict[str, float]
    rounds_received: dict[str, int]
    metrics: dict[str, float]
    exit_code: int | None
    log_tail: str
    accelerator_type: str | None
    worker_ids: list[str]
    priority: int
    max_retries: int
    failures: int
    after: list[str]
    waits_for: list[str]
    pause_requested: bool
    array_id: str | None
    array_index: int | None
    deadline: Deadline | None


class JobBatch(TypedDict):
    """Jobs that were submitted together, in the order given."""

    array_id: str | None
    items: list[Job]


class Cancelled(TypedDict):
    """Jobs that now end, and those asked for that do not."""

    cancelling: list[str]
    skipped: list[str]


class Event(TypedDict):
    """One entry of a job's story."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None


class Tier(TypedDict):
    """A tier's rules."""

    name: str
    weight: float
    objective: str
    guarantee: float
    cap: float
    default_priority: int
    max_jobs: int | None
    accelerator_hours_per_month: float | None
    budget_usd_per_month: float | None
    parent: str | None
    version: int


class Usage(TypedDict):
    """What a tier used in a month, beside its limits."""

    tier: str
    month: str
    accelerator_hours: float
    accelerator_hours_per_month: float | None
    cost_usd: float
    budget_usd_per_month: float | None
    unfinished_jobs: int
    max_jobs: int | None


class AuditEntry(TypedDict):
    """One decision that touched a user."""

    sequence: int
    at_s: float
    by: str
    action: str
    subject: str
    user: str
    round_index: int | None
    before: dict[str, Any] | None
    after: dict[str, Any]


class User(TypedDict):
    """A user and the tiers it may submit to; the first is the default."""

    name: str
    tiers: list[str]


class Lease(TypedDict):
    """The right of one gang to run on workers until an instant; `job_id` is None for another user's."""

    job_id: str | None
    token: int
    accelerator_type: str
    worker_ids: list[str]
    is_profiling: bool
    starts_at_s: float
    expires_at_s: float


class Round(TypedDict):
    """One round and its leases."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    solver_outcome: str | None
    leases: list[Lease]


class AllocationRow(TypedDict):
    """A job's target and received fractions of time, in the order of the allocation's types."""

    job_id: str
    name: str
    kind: str
    user: str
    tier: str
    target: list[float]
    received: list[float]
    note: str
    jobs: int


class Allocation(TypedDict):
    """The newest allocation, and what was checked of it."""

    round_index: int
    policy: str
    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    certificate: dict[str, float | None]
    types: list[str]
    capacity: dict[str, int]
    rows: list[AllocationRow]
    is_grouped: bool
    jobs: int


class Throughput(TypedDict):
    """What is believed of one job kind at one scale factor on one accelerator type."""

    kind: str
    scale_factor: int
    accelerator_type: str
    steps_per_s: float
    relative_error: float
    source: str
    measurements: int


class Throughputs(TypedDict):
    """The estimator's table."""

    types: list[str]
    items: list[Throughput]


class Estimate(Throughput):
    """A throughput with the interval that holds the truth nine times in ten."""

    low_steps_per_s: float
    high_steps_per_s: float
    partner: str | None
    placement: str
    refused: int


class Statement(TypedDict):
    """What a user stated, beside what was measured."""

    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    stated_steps_per_s: float
    measured_steps_per_s: float


class Reputation(TypedDict):
    """By what factor a user's statements are typically off."""

    user: str
    statements: int
    typical_factor: float
    is_off: bool


class Estimator(TypedDict):
    """Every estimate with its interval and source, and statements held against facts."""

    types: list[str]
    items: list[Estimate]
    statements: list[Statement]
    users: list[Reputation]


class Worker(TypedDict):
    """One accelerator, and the job on it."""

    id: str
    node: str
    accelerator_type: str
    price_usd_per_hour: float
    shares_core: bool
    busy: bool
    job_id: str | None


class Cluster(TypedDict):
    """Every node and worker."""

    nodes: list[dict[str, Any]]
    workers: list[Worker]
    capacity: dict[str, int]
    notes: list[str]
    resources: list[dict[str, Any]]


class Node(TypedDict):
    """A node, and what it is to the scheduler: ready, cordoned, draining, drained or lost."""

    name: str
    state: str
    since_s: float
    drain_by_s: float | None
    by: str
    region: str | None
    capacity: dict[str, int]
    jobs: list[str]


class Operation(TypedDict):
    """What was asked of the scheduler: `state` is pending, done or failed."""

    id: str
    kind: str
    subject: str
    state: str
    result: dict[str, Any]
    error: dict[str, str | None] | None
    by: str
    created_at_s: float
    finished_at_s: float | None
