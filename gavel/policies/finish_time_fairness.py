"""Finish-time fairness: no job ends much later than it would have with a slice of the cluster to itself."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.max_min import equally_late
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, FloatArray

SLACK = 1e-7  # relative; what the second step may give up of the first one's rho


@dataclass(frozen=True)
class FinishTimeFairness:
    """minimise max_i w_i rho_i with rho_i = (age_i + R_i / a_i) / (t_i + R_i / T_iso_i).

    a_i is what the allocation gives, T_iso_i what 1/n of every type would give, t_i the isolated time of done steps.
    1 / a_i is convex, so this is one convex program. What it leaves over is shared by max-min fairness (backfill).
    """

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "finish_time_fairness"
    formula: ClassVar[str] = "minimise max_i w_i (age_i + R_i / a_i) / (t_i + R_i / T_iso_i)"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2; Themis (NSDI '20), section 4.2"
    choose_when: ClassVar[str] = (
        "Choose this when no job should end much later than it would on a cluster part of its own."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"weight", "steps_remaining", "age_s", "isolated_time_s"})

    @property
    def promises(self) -> frozenset[str]:
        """Return the properties that hold; also Pareto efficiency with backfill."""
        return frozenset({"sharing_incentive", "pareto"} if self.backfill else {"sharing_incentive"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        isolated_s = _isolated_s(problem) / problem.weight
        return equally_late(problem, self.name, isolated_s, backfill=self.backfill) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the cvxpy program that defines the policy."""
        cp = cvxpy()

        program = Program(problem, solver="clarabel", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        jobs = np.flatnonzero(program.runnable)
        isolated_s, left_s = _isolated_s(problem)[jobs] / problem.weight[jobs], measures.remaining_time_s(problem)[jobs]
        speed = cp.multiply(1 / measures.rate_alone(problem).max(axis=1)[jobs], program.throughput[jobs])
        rho = cp.multiply(left_s / isolated_s, cp.inv_pos(speed)) + problem.age_s[jobs] / isolated_s
        fair = program.solve(self.name, cp.Minimize(cp.max(rho)))
        return self._share_the_rest(fair, problem) if self.backfill else fair

    def _share_the_rest(self, fair: Allocation, problem: AllocationProblem) -> Allocation:
        """Every job keeps the service that the worst rho needs, and what is left is shared by max-min fairness."""
        program = Program(problem, solver="highs", time_limit_s=self.time_limit_s)
        worst = float(-self.objective(problem, fair)[0]) * (1 + SLACK)
        time_left_s = worst * _isolated_s(problem) / problem.weight - problem.age_s
        rate = np.where(program.runnable, np.maximum(1.0, problem.steps_remaining) / time_left_s, 0.0)
        filling = Filling(Stated(program))
        jobs = range(len(problem.job_ids))
        filling.fill(Share([One(job) for job in jobs], problem.weight.tolist()), start=rate * program.service_per_step)
        program.solve_time_s += fair.solve_time_s
        return program.allocation(self.name)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return minus the worst w_i rho_i of the runnable jobs, (1,) or (0,)."""
        runnable = measures.runnable(problem)
        rate = measures.effective_throughput(problem, allocation.time_fraction)[runnable]
        left = np.maximum(1.0, problem.steps_remaining[runnable])
        until_s = problem.age_s[runnable] + np.divide(left, rate, out=np.full_like(rate, np.inf), where=rate > 0)
        rho = problem.weight[runnable] * until_s / _isolated_s(problem)[runnable]
        return -np.sort(rho)[::-1][:1]


def _isolated_s(problem: AllocationProblem) -> FloatArray:
    return measures.isolated_finish_s(problem, measures.even_share(problem))


POLICY = FinishTimeFairness
