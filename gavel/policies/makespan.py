"""Minimum makespan: the last job ends as early as it can."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.max_min import evenly
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program, Solver, cvxpy
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, FloatArray


@dataclass(frozen=True)
class Makespan:
    """minimise M = max_i R_i / a_i, as the linear program: maximise y = 1 / M subject to a_i >= R_i y.

    Gavel bisects on M; in y nothing has to be searched. One slow job that already has its best rate may fix M however
    many accelerators then stay idle; with backfill the second-latest end is made as early as it can be, and so on.
    """

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "makespan"
    formula: ClassVar[str] = "minimise max_i R_i / a_i"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Makespan)"
    choose_when: ClassVar[str] = (
        "Choose this when a fixed set of jobs should be done as early as possible, all together."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"steps_remaining"})

    @property
    def promises(self) -> frozenset[str]:
        """Return the properties that hold; also Pareto efficiency with backfill."""
        always = {"sharing_incentive", "monotone_in_capacity"}
        return frozenset(always | {"pareto"} if self.backfill else always)

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        work = measures.service_per_step(problem) * np.maximum(1.0, problem.steps_remaining)
        return evenly(problem, self.name, work, whole=self.backfill) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the cvxpy program that defines the policy."""
        solver: Solver = "highs" if self.backfill else "clarabel"
        program = Program(problem, solver=solver, time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        return self._filled(program) if self.backfill else plain(program)

    def _filled(self, program: Program) -> Allocation:
        """Water filling of a_i / R_i; its first level is y."""
        filling = Filling(Stated(program))
        per_progress = program.service_per_step * np.maximum(1.0, program.given.steps_remaining)
        jobs = np.flatnonzero(program.runnable)
        filling.fill(Share([One(int(job)) for job in jobs], per_progress[jobs].tolist()))
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the longest job's time alone over the time of each runnable job, latest end first.

        Without backfill that of the latest only.
        """
        alone_s = measures.remaining_time_s(problem)
        able = np.isfinite(alone_s)
        speed = measures.relative_throughput(problem, allocation.time_fraction)[able]
        latest_first: FloatArray = np.sort(speed / alone_s[able]) * alone_s[able].max(initial=0.0)
        return latest_first if self.backfill else latest_first[:1]


def plain(program: Program) -> Allocation:
    """Maximise y alone, in one program; raises SolveFailed."""
    cp = cvxpy()

    jobs = np.flatnonzero(program.runnable)
    alone_s = measures.remaining_time_s(program.given)[jobs]
    speed = cp.multiply(measures.per_best_rate(program.given)[jobs], program.throughput[jobs])
    return program.solve(Makespan.name, cp.Maximize(cp.min(cp.multiply(alone_s.max() / alone_s, speed))))


POLICY = Makespan
