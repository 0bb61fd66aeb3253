"""Least attained service, as Gavel states it: the worst-served job is served as well as it can be."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast.max_min import evenly, evenly_then_most
from gavel.policies.fast.packed import evenly_packed
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.pairs import can_be_named, named_pairs
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.programs.total import most
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, FloatArray, PairRates

SLACK = 1e-8  # relative; what the second program may give up of the first one's answer


@dataclass(frozen=True)
class MaxMinFairness:
    """maximise min_i q_i / w_i, q_i = s_i a_i / e_i, and with water filling the next worst after that, and so on.

    The published program fixes the worst-served job only: among its many optima a solver takes any. Without water
    filling the one of the greatest total sum_i w_i q_i is taken (docs/decisions/0008-which-optimum.md).
    """

    water_filling: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "max_min_fairness"
    formula: ClassVar[str] = "lexicographically maximise the sorted s_i a_i / (w_i e_i)"
    source: ClassVar[str] = "Gavel (OSDI '20), sections 4.1 and 4.3; LAS: Tiresias (NSDI '19)"
    choose_when: ClassVar[str] = "Choose this when all jobs should get on equally well, the worst-off job first."
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"weight"})
    promises: ClassVar[frozenset[str]] = frozenset({"sharing_incentive", "pareto"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem.

        For a problem with rates of pairs by kind it names the jobs alone and the pairs that have time.
        """
        check_problem(problem, takes_pair_rates=True)
        if problem.pair_rates is not None:
            return self._packed(problem, problem.pair_rates)
        if self.water_filling:
            return evenly(problem, self.name, problem.weight, whole=True) or self.program(problem)
        return evenly_then_most(problem, self.name, problem.weight) or self.program(problem)

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
        """Return the same allocation by the cvxpy program over named combinations that defines the policy."""
        program = Program(problem, solver="highs", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        return self._filled(program) if self.water_filling else plain(program)

    def _filled(self, program: Program) -> Allocation:
        filling = Filling(Stated(program))
        jobs = range(len(program.given.job_ids))
        filling.fill(Share([One(job) for job in jobs], program.given.weight.tolist()))
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return service over weight of the runnable jobs, worst first; without water filling the worst and total."""
        problem = named_pairs(problem, allocation.combinations)
        service = measures.service(problem, allocation.time_fraction)
        worst_first = np.sort((service / problem.weight)[measures.runnable(problem)])
        return worst_first if self.water_filling else np.append(worst_first[:1], problem.weight @ service)


def plain(program: Program) -> Allocation:
    """Maximise the least service over weight of the jobs that can run, then the total times weight; raises SolveFailed.

    Two programs; the second one keeps what the first one gives to everybody.
    """
    cp = cvxpy()
    problem, jobs = program.given, np.flatnonzero(program.runnable)
    worst = cp.min(cp.multiply(1 / problem.weight, program.service)[jobs])
    stated = program.over_valid(cp.Maximize(worst))
    program.run(stated)
    per_step = program.service_per_step
    kept = np.divide(problem.weight, per_step, out=np.zeros_like(per_step), where=per_step > 0) * float(stated.value)
    worth = measures.value_per_time(problem, (problem.weight * per_step)[:, None])
    least_speed = np.maximum(0.0, kept * measures.per_best_rate(problem) * (1 - SLACK))
    return most(program, worth, policy=MaxMinFairness.name, least_speed=least_speed)


POLICY = MaxMinFairness
