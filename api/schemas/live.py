"""Live events that are not about a job or a round."""

from pydantic import Field

from api.schemas.fields import View


class AllocationNews(View):
    """A new allocation: the outcome of its solve, and each tier's part of each accelerator type's workers."""

    round_index: int
    policy: str
    solver: str
    solver_outcome: str
    solve_time_s: float
    is_fallback: bool
    types: list[str]
    capacity: dict[str, int]
    tiers: dict[str, list[float]] = Field(description="By tier, a part between 0 and 1 for each of `types`.")


class ChangedNews(View):
    """Something changed: how many jobs and rounds. For pages that then read the lists again."""

    items: int
