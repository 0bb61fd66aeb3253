"""What the dashboard shows of the whole cluster: small answers however many jobs there are."""

from pydantic import Field

from api.schemas.fields import View
from gavel.types import Reason


class RoundSummary(View):
    """The round in force. `renewed_leases` were extended in place, so that the job went on without a restart."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    leases: int
    renewed_leases: int
    profiling_leases: int


class FallbackView(View):
    """The policy that gave no usable allocation, the error, since when, and what is in force instead."""

    policy: str
    error: str
    since_s: float
    instead: str = Field(description="`last allocation kept` or `equal share`.")


class SolveSummary(View):
    """How the newest allocation came about."""

    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    fallback: FallbackView | None = Field(None, description="null: the allocation is the policy's own.")


class WorstJob(View):
    """The unfinished job with the largest finish-time fairness."""

    id: str
    name: str
    rho: float


class Summary(View):
    """The cluster at a glance; jobs are yours (an operator's: everybody's)."""

    round: RoundSummary | None = Field(description="null before the first.")
    solve: SolveSummary | None
    jobs: dict[str, int] = Field(description="Unfinished jobs by shown state.")
    tiers: dict[str, int] = Field(description="Unfinished jobs by tier.")
    workers: int
    busy_workers: int
    worst: WorstJob | None
    notes: list[str] = Field(description="What an operator should know of the cluster, nodes included.")


class PlacedRound(View):
    """A round on the axis of placements."""

    round_index: int
    starts_at_s: float
    duration_s: float


class PlacementBlock(View):
    """A job on a worker over consecutive rounds of one generation: a lease that was renewed is one block."""

    worker_id: str
    accelerator_type: str
    job_id: str | None = Field(description="null for another user's job; its name and tier are empty.")
    name: str
    tier: str
    generation: int
    first_round: int
    last_round: int
    leases: int
    is_profiling: bool


class Placements(View):
    """Who held which worker in which round; rounds oldest first, blocks by worker and round."""

    rounds: list[PlacedRound]
    worker_ids: list[str]
    workers: int = Field(description="How many there are, those left out included.")
    blocks: list[PlacementBlock]


class SharesView(View):
    """The part of all workers that each tier's jobs held in each round, oldest first; with the tiers below it."""

    rounds: list[PlacedRound]
    tiers: dict[str, list[float]]
    jobs: dict[str, int] = Field(description="Unfinished jobs by tier, everybody's.")
    by_weight: dict[str, float] = Field(
        description="Share of the cluster by weights alone, among the tiers with unfinished jobs; by tier."
    )


class QueueItem(View):
    """A job that waits."""

    position: int | None = Field(
        description="Among the waiting jobs of its tier, by lag and arrival, from 1; null: it goes next."
    )
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


class Queue(View):
    """Jobs that wait, tier by tier in their order; yours (an operator's: everybody's)."""

    items: list[QueueItem]
    waiting: int = Field(description="How many wait, those of other pages included.")
    reasons: dict[str, int] = Field(description="How many wait for each reason.")
