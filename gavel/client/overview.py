"""The clients' calls about the cluster at a glance: small answers, however many jobs and workers there are."""

from typing import TypedDict

from gavel.client.script import Method, Script, get


class RoundSummary(TypedDict):
    """The round in force."""

    round_index: int
    starts_at_s: float
    duration_s: float
    policy: str
    leases: int
    renewed_leases: int
    profiling_leases: int


class SolveSummary(TypedDict):
    """How its allocation was solved."""

    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool


class WorstJob(TypedDict):
    """The job with the largest rho."""

    id: str
    name: str
    rho: float


class Summary(TypedDict):
    """The cluster at a glance: unfinished jobs by state and by tier, workers, and what an operator should know."""

    round: RoundSummary | None
    solve: SolveSummary | None
    jobs: dict[str, int]
    tiers: dict[str, int]
    workers: int
    busy_workers: int
    worst: WorstJob | None
    notes: list[str]


class PlacedRound(TypedDict):
    """When a round was."""

    round_index: int
    starts_at_s: float
    duration_s: float


class PlacementBlock(TypedDict):
    """A job on a worker over neighbouring rounds with one token; `job_id` is None for another user's."""

    worker_id: str
    accelerator_type: str
    job_id: str | None
    name: str
    tier: str
    token: int
    first_round: int
    last_round: int
    leases: int
    is_profiling: bool


class Placements(TypedDict):
    """Who held which worker in which round, oldest first."""

    rounds: list[PlacedRound]
    worker_ids: list[str]
    workers: int
    blocks: list[PlacementBlock]


class Shares(TypedDict):
    """The part of all workers that each tier's jobs held in each round, oldest first."""

    rounds: list[PlacedRound]
    tiers: dict[str, list[float]]


class QueueItem(TypedDict):
    """A job that waits; `position` in its tier, from 1; None: it goes next."""

    position: int | None
    id: str
    name: str
    kind: str
    user: str
    tier: str
    state: str
    reason: str
    message: str
    priority: int
    scale_factor: int
    submitted_at_s: float
    steps: int
    total_steps: int


class Queue(TypedDict):
    """Jobs that wait, tier by tier; how many there are in all, and for what reasons."""

    items: list[QueueItem]
    waiting: int
    reasons: dict[str, int]


class OverviewCalls:
    """Part of both clients."""

    @Method
    def summary(self) -> Script[Summary]:
        """The cluster at a glance."""
        return get("/v1/summary")

    @Method
    def queue(self, *, tier: str | None = None, start: int = 0, limit: int = 50) -> Script[Queue]:
        """Jobs that wait, tier by tier in their order, each with its position and reason."""
        return get("/v1/queue", tier=tier, start=start, limit=limit)

    @Method
    def placements(
        self, *, before: int | None = None, rounds: int = 40, node: str | None = None, job_id: str | None = None
    ) -> Script[Placements]:
        """Who held which worker in the last rounds: of one node, of one job, or the first workers of all."""
        return get("/v1/placements", before=before, rounds=rounds, node=node, job_id=job_id)

    @Method
    def shares(self, *, before: int | None = None, rounds: int = 40) -> Script[Shares]:
        """The part of all workers that each tier's jobs held, round by round."""
        return get("/v1/shares", before=before, rounds=rounds)
