"""Policies that fail as solvers do: with an error, too late, with NaN, at a wrong point, or with garbage."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem

ERROR, TIMEOUT, NOT_A_NUMBER, WRONG_POINT, RAISES = range(5)


@dataclass(frozen=True)
class FailingPolicy:
    """A policy whose answers are wrong in the way that `how` says."""

    name: ClassVar[str] = "failing"
    policy: Policy
    how: int

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a wrong answer, or raise."""
        if self.how in (ERROR, TIMEOUT):
            raise SolveFailed("infeasible" if self.how == ERROR else "no answer within the limit")
        if self.how == RAISES:
            raise ArithmeticError("the solver crashed")
        answer = self.policy.allocate(problem)
        wrong = np.full_like(answer.time_fraction, np.nan if self.how == NOT_A_NUMBER else 1.7)
        return replace(answer, time_fraction=wrong)


class SimulatedRunner(InlineRunner):
    """Solves in this process, at once; `fault` says how the next answer is wrong, None: it is not."""

    def __init__(self, fault: Callable[[], int | None]) -> None:
        super().__init__(load=self._load_policy)
        self._fault = fault

    def warm(self) -> bool:
        """Return True: what is used here needs no solver library."""
        return True

    def _load_policy(self, name: str) -> Policy:
        how = self._fault()
        policy = registry.load(name)
        return policy if how is None else FailingPolicy(policy, how)
