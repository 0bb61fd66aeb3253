"""The cvxpy program that every policy states its objective over, its one solve call, and the check of the answer.

Valid allocations (Gavel, OSDI '20, section 3.1): X >= 0, each job's time over its combinations <= 1, and workers held
on each type <= its capacity, sum_r s_r X_rj <= N_j. Entries that cannot be used (zero throughput, gang larger than the
type) are no variables at all.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.programs import names
from gavel.policies.programs.validate import check_problem
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

Solver = Literal["clarabel", "highs"]
MOST_VIOLATION = 1e-6
NEGLIGIBLE = 1e-6  # less is the solver's rounding, and not a round in a million
MOST_TIME_LIMIT_S = 3600.0

_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "clarabel": tuple({"tol_gap_abs": most, "tol_gap_rel": most, "tol_feas": most} for most in (1e-9, 1e-8)),
    "highs": ({"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9, "threads": 1},),
}  # Where rounding keeps the first from being met, the next is tried: one logarithm program in 300 needs it.


def cvxpy() -> Any:
    """The cvxpy module, imported when it is first needed: it takes about a second."""
    import cvxpy

    return cvxpy


class Program:
    """Valid allocations of one problem as a cvxpy program.

    `x` (v,) holds the v usable entries of X (combinations, types), `entries` where they lie in it; `throughput` (n,) is
    the effective throughput in steps/s, `service` (n,) the same in equal-share accelerators (docs/policies.md);
    `runnable` (n,) says which jobs have any usable entry. `rates`, `times` (n, v) and `held` (m, v) are the sparse
    matrices behind them. `capacity` (m,) is a cvxpy parameter, preset to `limits`: the problem's workers.

    `shared` (k, n) adds k resources that are not workers, as the part of the cluster's total that each job holds while
    it runs. Each of the `parts` says that some jobs (rows) together hold no more than a fraction of every type's
    workers; a packed pair counts half for each of its jobs. Both become further rows of `held` and of `limits`.
    """

    def __init__(
        self,
        problem: AllocationProblem,
        *,
        solver: Solver = "clarabel",
        time_limit_s: float = 60.0,
        shared: FloatArray | None = None,
        parts: Sequence[tuple[IntArray, float]] = (),
    ) -> None:
        cp = cvxpy()

        check_problem(problem)
        self.given = problem
        self.solver = solver
        self.time_left_s = min(time_limit_s, MOST_TIME_LIMIT_S)
        self.solve_time_s = 0.0
        self.entries = np.nonzero(measures.can_run(problem))
        self.rates, self.times, self.held = _matrices(problem, self.entries)
        self.limits = problem.capacity_workers.astype(float)
        workers, held = self.limits, self.held
        if shared is not None:
            self._limit(shared @ self.times, np.ones(len(shared)))
        for jobs, part in parts:
            self._limit(held.multiply(self.times[jobs].sum(axis=0) / self.times.sum(axis=0)), part * workers)
        self.service_per_step = measures.service_per_step(problem)
        self.runnable = self.rates.sum(axis=1) > 0
        if self.is_idle:
            return  # nothing to state: cvxpy knows no empty variable
        self.x = cp.Variable(len(self.entries[0]), nonneg=True)
        self.throughput = self.rates @ self.x
        self.service = cp.multiply(self.service_per_step, self.throughput)
        self.capacity = cp.Parameter(self.held.shape[0], nonneg=True, value=self.limits)
        self.time_limit = self.times @ self.x <= 1
        self.capacity_limit = self.held @ self.x <= self.capacity

    def _limit(self, held: Any, limits: FloatArray) -> None:
        """More rows of `held` (k, v), which may be dense, and their `limits` (k,)."""
        from scipy import sparse

        self.held = sparse.vstack([self.held, sparse.csr_array(held)], format="csr")
        self.limits = np.append(self.limits, limits)

    @property
    def is_idle(self) -> bool:
        """True if no job can run anywhere: only zero is valid, and there is no variable to state anything over."""
        return not self.runnable.any()

    def over_valid(self, objective: Any, constraints: Sequence[Any] = ()) -> Any:
        """A cvxpy problem: `objective` over the valid allocations that also keep `constraints`."""
        cp = cvxpy()

        return cp.Problem(objective, [self.time_limit, self.capacity_limit, *constraints])

    def run(self, stated: Any) -> None:
        """Solve a problem made by `over_valid`; SolveFailed unless the solver says it is optimal, in the time left."""
        cp = cvxpy()

        for options in _OPTIONS[self.solver]:
            self._run(stated, options)
            if stated.status != cp.OPTIMAL_INACCURATE:
                break
        if stated.status != cp.OPTIMAL:
            raise SolveFailed(f"{self.solver} answered {stated.status}; only optimal is used")

    def _run(self, stated: Any, options: dict[str, Any]) -> None:
        cp = cvxpy()

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")  # `run` looks at the status
            try:
                options = options | {"time_limit": self.time_left_s}
                stated.solve(solver=self.solver.upper(), warm_start=False, **options)  # a warm basis misled HiGHS
            except (cp.error.SolverError, ValueError) as error:  # ValueError: an answer of unknown status
                raise SolveFailed(f"{self.solver} gave up: {error}") from error
        spent_s = float(stated.solver_stats.solve_time or 0.0)
        self.solve_time_s += spent_s
        self.time_left_s = max(1e-3, self.time_left_s - spent_s)

    def prices(self) -> FloatArray:
        """What a unit of each entry of x costs, (v,): its jobs' time and its workers, at the last dual prices."""
        time_price, worker_price = self._time_and_worker_price()
        costs: FloatArray = self.times.T @ time_price + self.held.T @ worker_price
        return costs

    def bound(self, gain: FloatArray) -> float:
        """A number that `gain` (v,) times x exceeds for no valid x: the dual bound at the prices of the last answer.

        It holds whatever the prices are, since what an entry gains over its price counts in full.
        """
        time_price, worker_price = self._time_and_worker_price()
        left = np.maximum(0.0, gain - self.prices())
        return float(time_price.sum() + worker_price @ self.capacity.value + left.sum())

    def _time_and_worker_price(self) -> tuple[FloatArray, FloatArray]:
        return np.maximum(0.0, self.time_limit.dual_value), np.maximum(0.0, self.capacity_limit.dual_value)

    def overuse(self) -> float:
        """The factor, at least 1, by which the last answer is too large for a limit, within the solver's tolerance."""
        held = self.held @ self.x.value
        capacity = self.capacity.value
        full = np.divide(held, capacity, out=np.zeros_like(held), where=capacity > 0)
        return max(1.0, float((self.times @ self.x.value).max()), float(full.max()))

    def allocation(self, policy: str, *, dual_gap: float | None = None) -> Allocation:
        """The last answer, clipped to [0, 1] and checked on the problem's own numbers; SolveFailed if off by > 1e-6."""
        fractions = np.zeros((len(self.given.combinations), len(self.given.accelerator_types)))
        if not self.is_idle:
            x = np.clip(self.x.value, 0.0, 1.0)
            fractions[self.entries] = np.where(x < NEGLIGIBLE, 0.0, x)
        broken_by = max(measures.violation(self.given, fractions), self._beyond_workers(fractions))
        if not broken_by <= MOST_VIOLATION:
            raise SolveFailed(f"{self.solver}'s answer breaks a limit by {broken_by:.1e} (most: {MOST_VIOLATION:.0e})")
        certificate = Certificate(primal_violation=broken_by, dual_gap=dual_gap)
        return named(self.given, fractions, certificate, policy, self.solver, self.solve_time_s)

    def _beyond_workers(self, fractions: FloatArray) -> float:
        """How far, relatively, `fractions` break a limit of `held` that is not simply a type's workers."""
        types = len(self.given.capacity_workers)
        held, limits = (self.held @ fractions[self.entries])[types:], self.limits[types:]
        over = np.divide(held - limits, limits, out=np.zeros_like(limits), where=limits > 0)
        return max(0.0, float(over.max(initial=0.0)))

    def solve(self, policy: str, objective: Any, constraints: Sequence[Any] = ()) -> Allocation:
        """State, solve, clip, check: the whole way of a policy that is one program. Raises SolveFailed."""
        self.run(self.over_valid(objective, constraints))
        return self.allocation(policy)


def named(
    problem: AllocationProblem,
    fractions: FloatArray,
    certificate: Certificate,
    policy: str,
    solver: str,
    solve_time_s: float = 0.0,
) -> Allocation:
    """`fractions` (combinations, types) with the names of `problem` on them."""
    return Allocation(
        combinations=names.of_combinations(problem),
        accelerator_types=problem.accelerator_types,
        time_fraction=fractions,
        certificate=certificate,
        policy=policy,
        solver=solver,
        solve_time_s=solve_time_s,
    )


def _matrices(problem: AllocationProblem, entries: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Sparse (n, v) throughput, (n, v) time and (m, v) workers held per unit of each usable entry."""
    from scipy import sparse

    rows, types = entries
    column = np.arange(len(rows))
    members = measures.member_of(problem)[rows]
    there = members >= 0
    jobs, columns = members[there], np.broadcast_to(column[:, None], members.shape)[there]
    gained = problem.throughput_steps_per_s[rows, :, types][there]
    shape = (len(problem.job_ids), len(rows))
    rates = sparse.csr_array((gained, (jobs, columns)), shape=shape)
    times = sparse.csr_array((np.ones(len(jobs)), (jobs, columns)), shape=shape)
    workers = measures.gang_size(problem)[rows].astype(float)
    held = sparse.csr_array((workers, (types, column)), shape=(len(problem.accelerator_types), len(rows)))
    return rates, times, held


def warm_up() -> None:
    """Import what solving needs, so that the first round does not wait for it.

    HiGHS takes the number of threads of the first solve for all of this process, and refuses programs with another one.
    """
    cp = cvxpy()

    x = cp.Variable(1, nonneg=True)
    for solver, options in _OPTIONS.items():
        cp.Problem(cp.Maximize(cp.sum(x)), [x <= 1]).solve(solver=solver.upper(), **options[0])
