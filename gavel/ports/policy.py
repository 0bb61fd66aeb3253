"""The ports of what solves an allocation problem."""

from typing import Protocol

from gavel.types import (
    Allocation,
    AllocationProblem,
)


class Policy(Protocol):
    """States an objective over an allocation problem."""

    @property
    def name(self) -> str:
        """The name by which it is loaded."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation. Raises SolveFailed or InvalidProblem."""


class PolicyRunner(Protocol):
    """Runs policies with limits. `policy` is a name with parameters: `max_min_fairness?time_limit_s=5`."""

    def warm(self) -> bool:
        """Start to get ready if that has not happened yet; return True once `allocate` can be called without a wait."""

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """Return a checked allocation within `time_limit_s`. Raises SolveFailed, also on time-out or crash."""

    def close(self) -> None:
        """End the processes that the runner started."""
