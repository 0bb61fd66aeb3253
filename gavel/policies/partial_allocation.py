"""Partial allocation: each job keeps a part of its proportionally fair share; no lie about throughput pays."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies._nash import nash
from gavel.policies._program import Program
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class PartialAllocation:
    """X_i = f_i X*_i, f_i = (prod_(k != i) (a_k(X*) / a_k(X*_-i))^w_k)^(1 / w_i).

    X* is the proportionally fair allocation, X*_-i that of a cluster without job i: each job pays, in time, what its
    presence costs the others. What i then has is its share of a product that X* already makes as large as it can be, so
    no other statement of T_i is better for it. It keeps at least 1/e of its proportionally fair rate. It costs
    n + 1 solves, and what is held back stays idle.
    """

    time_limit_s: float = 60.0

    name: ClassVar[str] = "partial_allocation"
    formula: ClassVar[str] = "X_i = X*_i (prod_(k != i) (a_k(X*) / a_k(X*_-i))^w_k)^(1 / w_i), X* proportionally fair"
    source: ClassVar[str] = "Cole, Gkatzelis, Goel (EC '13), section 3: the Partial Allocation mechanism"
    order_matters: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset({"strategy_proof"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation; raises SolveFailed or InvalidProblem."""
        program = Program(problem, solver="clarabel", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        jobs = np.flatnonzero(program.runnable)
        rates = nash(program, jobs)
        fair = program.allocation(self.name)
        kept = np.ones(len(problem.job_ids))
        kept[jobs] = _kept(program, jobs, rates)
        members = measures.member_of(problem)
        part = np.where(members >= 0, kept[members], 1.0).min(axis=1)  # a packed pair keeps what both may keep
        return replace(fair, time_fraction=fair.time_fraction * part[:, None], solve_time_s=program.solve_time_s)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Relative throughputs, least first, (n,)."""
        return np.sort(measures.relative_throughput(problem, allocation.time_fraction))


def _kept(program: Program, jobs: IntArray, rates: FloatArray) -> FloatArray:
    """The part f of its proportionally fair time that each of `jobs` (k,) keeps, (k,), in [1/e, 1]."""
    weight = program.given.weight[jobs]
    log_fair = np.log(rates)
    log_kept = np.zeros(len(jobs))
    for place in range(len(jobs)) if len(jobs) > 1 else ():
        others = np.arange(len(jobs)) != place
        log_without = np.log(nash(program, jobs[others]))
        log_kept[place] = weight[others] @ (log_fair[others] - log_without) / weight[place]
    return np.exp(np.minimum(0.0, log_kept))


POLICY = PartialAllocation
