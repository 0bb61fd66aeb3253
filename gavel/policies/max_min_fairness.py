"""Least attained service, as Gavel states it: the worst-served job is served as well as it can be."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies._curves import One, Share
from gavel.policies._filling import Filling, Stated
from gavel.policies._pairs import can_be_named, named_pairs
from gavel.policies._program import Program, Solver, cvxpy
from gavel.policies._validate import check_problem
from gavel.policies.fast.family import evenly
from gavel.policies.fast.packed import evenly_packed
from gavel.types import Allocation, AllocationProblem, FloatArray, PairRates


@dataclass(frozen=True)
class MaxMinFairness:
    """maximise min_i s_i a_i / (w_i e_i), and with water filling the next worst after that, and so on.

    The plain program is content once one job is at its own best rate, however many accelerators then stay idle; water
    filling goes on with the others, so it is the default.
    """

    water_filling: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "max_min_fairness"
    formula: ClassVar[str] = "lexicographically maximise the sorted s_i a_i / (w_i e_i)"
    source: ClassVar[str] = "Gavel (OSDI '20), sections 4.1 and 4.3; LAS: Tiresias (NSDI '19)"
    order_matters: ClassVar[bool] = False

    @property
    def promises(self) -> frozenset[str]:
        """Also Pareto-efficient with water filling."""
        return frozenset({"sharing_incentive", "pareto"} if self.water_filling else {"sharing_incentive"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation, by prices where that is certified; raises SolveFailed or InvalidProblem.

        For a problem with rates of pairs by kind it names the jobs alone and the pairs that have time.
        """
        check_problem(problem, takes_pair_rates=True)
        if problem.pair_rates is not None:
            return self._packed(problem, problem.pair_rates)
        return evenly(problem, self.name, problem.weight, whole=self.water_filling) or self.program(problem)

    def _packed(self, problem: AllocationProblem, pairs: PairRates) -> Allocation:
        """By classes; where these give no certified answer, by the program, if that can name all pairs."""
        whole, limit_s = self.water_filling, self.time_limit_s
        try:
            return evenly_packed(problem, pairs, self.name, whole=whole, time_limit_s=limit_s)
        except SolveFailed:
            if not can_be_named(problem):
                raise
        return self.program(named_pairs(problem))

    def program(self, problem: AllocationProblem) -> Allocation:
        """The same by the cvxpy program over named combinations, which defines it."""
        solver: Solver = "highs" if self.water_filling else "clarabel"
        program = Program(problem, solver=solver, time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        return self._filled(program) if self.water_filling else plain(program)

    def _filled(self, program: Program) -> Allocation:
        filling = Filling(Stated(program))
        jobs = range(len(program.given.job_ids))
        filling.fill(Share([One(job) for job in jobs], program.given.weight.tolist()))
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Service over weight of the runnable jobs, worst first; of the worst only without water filling."""
        problem = named_pairs(problem, allocation.combinations)
        per_weight = measures.service(problem, allocation.time_fraction) / problem.weight
        worst_first = np.sort(per_weight[measures.runnable(problem)])
        return worst_first if self.water_filling else worst_first[:1]


def plain(program: Program) -> Allocation:
    """Maximise the least service over weight of the jobs that can run, in one program; raises SolveFailed."""
    cp = cvxpy()
    per_weight = cp.multiply(1 / program.given.weight, program.service)
    worst = cp.min(per_weight[np.flatnonzero(program.runnable)])
    return program.solve(MaxMinFairness.name, cp.Maximize(worst))


POLICY = MaxMinFairness
