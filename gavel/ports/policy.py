"""Who answers an allocation problem."""

from typing import Protocol

from gavel.types import (
    Allocation,
    AllocationProblem,
)


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
