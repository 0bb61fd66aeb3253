"""Proportional fairness: a job may gain only if nobody else loses a larger part of what they have."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.bargaining import proportionally
from gavel.policies.programs.nash import dual_gap, nash
from gavel.policies.programs.program import Program
from gavel.policies.programs.validate import check_problem
from gavel.types import Allocation, AllocationProblem, FloatArray


@dataclass(frozen=True)
class ProportionalFairness:
    """maximise sum_i w_i log a_i: the Nash bargaining solution, and the market equilibrium of equal budgets.

    The unit of a_i does not matter, so nothing has to be normalised.
    """

    time_limit_s: float = 60.0

    name: ClassVar[str] = "proportional_fairness"
    formula: ClassVar[str] = "maximise sum_i w_i log a_i"
    source: ClassVar[str] = "Nash (1950); Kelly, Maulloo, Tan (1998); Eisenberg, Gale (1959)"
    choose_when: ClassVar[str] = (
        "Choose this when total speed and fairness should be balanced, with no job left without time."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"weight"})
    promises: ClassVar[frozenset[str]] = frozenset({"pareto", "monotone_in_capacity"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by `fast.nash` where that is certified. Raises SolveFailed or InvalidProblem.

        The certificate's gap is that of the weighted mean of logarithms to a bound.
        """
        check_problem(problem)
        return proportionally(problem, self.name) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the cvxpy program that defines the policy."""
        program = Program(problem, solver="clarabel", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        jobs = np.flatnonzero(program.runnable)
        speeds = nash(program, jobs)
        return program.allocation(self.name, dual_gap=dual_gap(program, jobs, speeds))

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the weighted sum of the logarithms of the runnable jobs' relative throughputs, (1,)."""
        able = measures.runnable(problem)
        with np.errstate(divide="ignore"):  # a job without any time makes the product 0 and its logarithm -inf
            logs = np.log(measures.relative_throughput(problem, allocation.time_fraction)[able])
        return np.asarray([float(problem.weight[able] @ logs)])


POLICY = ProportionalFairness
