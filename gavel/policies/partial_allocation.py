"""Partial allocation: each job keeps a part of its proportionally fair share; false throughputs never help."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.bargaining import proportionally, without_each
from gavel.policies.programs.nash import nash
from gavel.policies.programs.program import Program
from gavel.policies.programs.validate import check_one_size, check_problem
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
    choose_when: ClassVar[str] = (
        "Choose this when users may state wrong throughputs to gain more, and must not profit from it."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"weight"})
    promises: ClassVar[frozenset[str]] = frozenset({"strategy_proof"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by `fast.nash` where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        check_one_size(problem)
        fair = proportionally(problem, self.name)
        jobs = np.flatnonzero(measures.runnable(problem))
        without = (
            without_each(problem, jobs) if fair is not None and len(jobs) > 1 else np.zeros((len(jobs), len(jobs)))
        )
        if fair is None or without is None:
            return self.program(problem)
        rates = measures.effective_throughput(problem, fair.time_fraction)[jobs]
        return _paid(problem, fair, jobs, _kept(problem.weight[jobs], rates, without))

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the n + 1 cvxpy programs that define the policy."""
        program = Program(problem, solver="clarabel", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        jobs = np.flatnonzero(program.runnable)
        rates = nash(program, jobs)
        fair = program.allocation(self.name)
        kept = _kept(problem.weight[jobs], rates, _without_each(program, jobs))
        return replace(_paid(problem, fair, jobs, kept), solve_time_s=program.solve_time_s)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the relative throughputs, least first, (n,)."""
        return np.sort(measures.relative_throughput(problem, allocation.time_fraction))


def _without_each(program: Program, jobs: IntArray) -> FloatArray:
    """Relative throughputs of `jobs` (k,) without each of them, (k, k); row i is without job i, which has 0."""
    rates = np.zeros((len(jobs), len(jobs)))
    for place in range(len(jobs)) if len(jobs) > 1 else ():
        others = np.arange(len(jobs)) != place
        rates[place, others] = nash(program, jobs[others])
    return rates


def _kept(weight: FloatArray, rates: FloatArray, without: FloatArray) -> FloatArray:
    """The part f of its proportionally fair time that each of k jobs keeps, (k,), in [1/e, 1].

    `rates` (k,) are the proportionally fair ones, `without` (k, k) those without each job, in the same units.
    """
    others = without > 0
    lost = np.log(np.where(others, rates, 1.0)) - np.log(np.where(others, without, 1.0))
    kept: FloatArray = np.exp(np.minimum(0.0, lost @ weight / weight))
    return kept


def _paid(problem: AllocationProblem, fair: Allocation, jobs: IntArray, kept_by: FloatArray) -> Allocation:
    """The `fair` allocation less what each of `jobs` (k,) does not keep; a packed pair keeps what both may keep."""
    kept = np.ones(len(problem.job_ids))
    kept[jobs] = kept_by
    members = measures.member_of(problem)
    part = np.where(members >= 0, kept[members], 1.0).min(axis=1)
    return replace(fair, time_fraction=fair.time_fraction * part[:, None])


POLICY = PartialAllocation
