"""Every job gets the same slice of every type: the closed form that needs no solver and never fails."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import named
from gavel.policies.programs.validate import check_one_size, check_problem
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray


@dataclass(frozen=True)
class EqualShare:
    """X_ij = N_j / (n s_i) where job i can run on type j, rows divided by max(1, their sum); n jobs that can run."""

    name: ClassVar[str] = "equal_share"
    formula: ClassVar[str] = "X_ij = N_j / (n s_i), rows scaled to at most 1"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.1: the equal split X^equal; its Isolated baseline"
    choose_when: ClassVar[str] = (
        "Choose this when you want the simplest rule, an equal part of every type for each job, as a baseline."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset()
    promises: ClassVar[frozenset[str]] = frozenset({"sharing_incentive", "strategy_proof"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return the equal split. Raises InvalidProblem, never SolveFailed."""
        check_problem(problem)
        check_one_size(problem)
        fractions = equal_split(problem)
        certificate = Certificate(primal_violation=measures.violation(problem, fractions))
        return named(problem, fractions, certificate, self.name, solver="closed form")

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the service of the worst-served runnable job, (1,) or (0,)."""
        got = measures.service(problem, allocation.time_fraction)[measures.runnable(problem)]
        return np.sort(got)[:1]


def equal_split(problem: AllocationProblem) -> FloatArray:
    """Return the time fractions (combinations, types) of the equal split over the n jobs that can run somewhere."""
    return measures.slice_of_each_type(problem, measures.even_share(problem))


POLICY = EqualShare
