"""The greatest total worth where jobs may be packed two on the same workers: pairs enter as they pay.

n jobs make n²/2 pairs, of which few are ever worth their members' time. So the linear program begins without them:

1. solve over the combinations that the problem names; its multipliers price each job's time and each type's workers;
2. of the pairs that are worth more than both their members' time and their workers (`paying_pairs.py`), the best enter
   the program, which goes on from its last basis;
3. when no such pair is left, the prices bound the total over all pairs, named or not, and the answer attains them.

What jobs have at least (`Floors`) are further rows: their multipliers add to what a step of these jobs is worth.

Column generation (Gilmore and Gomory, Operations Research 9:6, 1961) for space sharing (Gavel, OSDI '20, section 3.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gavel.linear import simplex
from gavel.policies import measures
from gavel.policies.fast.paying_pairs import Columns, PairPrices, Pairs
from gavel.policies.programs.pairs import rates_of_pairs
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

SOLVER = "priced pairs"
MOST_PASSES = 100
ENTERING_PER_JOB = 2  # pairs that enter at a time
EXACT = 1e-9  # what the solver may leave a price off by, of the largest worth
PAYS = 1e-8  # what a pair must gain beyond its price; more than EXACT, or it would enter twice
NEGLIGIBLE = 1e-9
OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "dual_feasibility_tolerance": EXACT,
    "simplex_strategy": simplex.PRIMAL,  # what has been found stays valid when pairs enter
}


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """What n jobs have at least: the sum of `per_step` (n,) times steps/s over the jobs of row d is `least[d]` or more.

    `rows_of_job` (n, 2): the rows that a job belongs to, -1 for none.
    """

    per_step: FloatArray
    rows_of_job: IntArray
    least: FloatArray

    @classmethod
    def of_each(cls, per_step: FloatArray, least: FloatArray, groups: Sequence[IntArray], together: FloatArray) -> Self:
        """Return the floors of jobs that have `least` (n,) each, and of `groups` of jobs that have so much `together`.

        Nothing is asked of a job whose least is 0.
        """
        rows, asking = np.full((len(least), 2), -1), np.flatnonzero(least > 0)
        rows[asking, 0] = np.arange(len(asking))
        for index, own in enumerate(groups):
            rows[own, 1] = len(asking) + index
        return cls(per_step, rows, np.append(least[asking], together))

    def worth(self, price: FloatArray) -> FloatArray:
        """Return what a step of each job adds by the prices of its rows, (n,)."""
        added: FloatArray = self.per_step * np.append(price, 0.0)[self.rows_of_job].sum(axis=1)
        return added


def packed_greatest(
    problem: AllocationProblem, per_step: FloatArray, policy: str, floors: Floors | None = None
) -> Allocation | None:
    """Return the allocation with the greatest sum of `per_step` (n,) times steps per second, over jobs and pairs.

    Pairs are those that the problem names and all that its `pair_rates` allow; the allocation names the ones that it
    uses behind the problem's own combinations. Jobs have what their `floors` say, which jobs alone can have. None where
    a program has to answer: nothing is worth anything, or the certificate is over 1e-6. `problem` is checked already.
    """
    begun, entries = _alone_and_named(problem, per_step)
    if not len(begun.first):
        return None
    market = _Market(problem, per_step, floors or _no_floors(len(per_step)))
    columns, pairs, most = market.take(begun), Pairs(problem), ENTERING_PER_JOB * len(per_step)
    for _ in range(MOST_PASSES):
        solved = market.solve()
        if solved is None:
            return None
        entering = pairs.paying(solved.prices, solved.least_gain, most)
        if not len(entering.first):
            return _checked(market, columns, entries, solved, policy)
        columns = columns.and_(market.take(entering))
    return None


def _no_floors(jobs: int) -> Floors:
    return Floors(np.zeros(jobs), np.full((jobs, 2), -1), np.zeros(0))


def _alone_and_named(problem: AllocationProblem, per_step: FloatArray) -> tuple[Columns, tuple[IntArray, IntArray]]:
    """The problem's own combinations where they are worth something, and where they lie in an allocation."""
    rows, types = np.nonzero(measures.value_per_time(problem, per_step[:, None]) > 0)
    members = measures.member_of(problem)[rows]
    return Columns(members[:, 0], members[:, 1], types, problem.throughput_steps_per_s[rows, :, types]), (rows, types)


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """Fraction of each variable (v,); prices of each job's time (n,), each type's worker (m,) and each floor (d,).

    `step_price` (n,) is what a step of each job is worth at these, floors included.
    """

    fraction: FloatArray
    time_price: FloatArray
    worker_price: FloatArray
    floor_price: FloatArray
    step_price: FloatArray

    @property
    def prices(self) -> PairPrices:
        """Return what pairs are priced by."""
        return PairPrices(self.step_price, self.time_price, self.worker_price)

    @property
    def least_gain(self) -> float:
        """Return what a pair has to gain to enter."""
        return PAYS * float(self.time_price.max(initial=0.0) + self.worker_price.max(initial=0.0))


class _Market:
    """The linear program so far, kept in the solver from pass to pass with its basis."""

    def __init__(self, problem: AllocationProblem, per_step: FloatArray, floors: Floors) -> None:
        import highspy

        self.problem, self.per_step, self.floors = problem, per_step, floors
        self._jobs, self._types = len(problem.job_ids), len(problem.accelerator_types)
        self._scale = problem.scale_factor.astype(float)
        self._unit = 0.0
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in OPTIONS.items():
            self._solver.setOptionValue(name, value)
        most = np.concatenate([np.ones(self._jobs), problem.capacity_workers.astype(float)])
        upper = np.append(most, np.full(len(floors.least), np.inf))
        lower = np.append(np.full(len(most), -np.inf), floors.least)
        none, starts = np.zeros(0, dtype=np.int32), np.zeros(len(upper), dtype=np.int32)
        self._solver.addRows(len(upper), lower, upper, 0, starts, none, np.zeros(0))
        self._optimal = highspy.HighsModelStatus.kOptimal

    def take(self, columns: Columns) -> Columns:
        """Add the variables; `columns` again."""
        worth = columns.worth(self.per_step)
        self._unit = self._unit or float(worth.max())
        rows, values = self._entries(columns)
        is_there = (rows >= 0) & (values != 0)
        counts = is_there.sum(axis=1)
        starts = (np.cumsum(counts) - counts).astype(np.int32)
        index, value = rows[is_there].astype(np.int32), values[is_there]
        free = np.full(len(starts), np.inf)
        cost = -worth / self._unit
        self._solver.addCols(len(starts), cost, np.zeros(len(starts)), free, len(index), starts, index, value)
        return columns

    def _entries(self, columns: Columns) -> tuple[IntArray, FloatArray]:
        """The rows in which each variable stands, and what it counts there, (v, 7); row -1: none.

        The time of both members, the workers, and two floors of each member, which are one row for both where these
        are of one group.
        """
        members = np.stack([columns.first, columns.second], axis=1)
        there = members >= 0
        rows = np.where(there[:, :, None], self.floors.rows_of_job[members], -1)
        gained = self.floors.per_step[members] * columns.rates
        is_shared = (rows[:, 0, 1] == rows[:, 1, 1]) & (rows[:, 0, 1] >= 0)
        together = gained[:, 0] + np.where(is_shared, gained[:, 1], 0.0)
        floor = np.where(rows >= 0, rows + self._jobs + self._types, -1)
        held = (self._jobs + columns.types, self._scale[columns.first])
        of_first, of_second = (floor[:, 0, 0], gained[:, 0]), (floor[:, 1, 0], gained[:, 1])
        groups = (floor[:, 0, 1], together), (np.where(is_shared, -1, floor[:, 1, 1]), gained[:, 1])
        ones = np.ones(len(members))
        entries = ((members[:, 0], ones), (members[:, 1], ones), held, of_first, of_second, *groups)
        return np.stack([each[0] for each in entries], axis=1), np.stack([each[1] for each in entries], axis=1)

    def solve(self) -> _Solved | None:
        """The best fractions and their prices; None unless the solver says that they are optimal."""
        self._solver.run()
        if self._solver.getModelStatus() != self._optimal:
            return None
        answer = self._solver.getSolution()
        dual, limits = np.array(answer.row_dual) * self._unit, self._jobs + self._types
        prices, floor_price = np.maximum(0.0, -dual[:limits]), np.maximum(0.0, dual[limits:])
        step_price = self.per_step + self.floors.worth(floor_price)
        fraction = np.array(answer.col_value)
        return _Solved(fraction, prices[: self._jobs], prices[self._jobs :], floor_price, step_price)


def _checked(
    market: _Market, columns: Columns, entries: tuple[IntArray, IntArray], solved: _Solved, policy: str
) -> Allocation | None:
    """Step 3: the answer with its pairs named, or None if it breaks a limit or does not attain its bound."""
    fraction, problem, begun = np.clip(solved.fraction, 0.0, 1.0), market.problem, len(entries[0])
    used = np.flatnonzero(fraction[begun:] > NEGLIGIBLE) + begun
    pairs, row_of = np.unique(
        np.stack([columns.first[used], columns.second[used]], axis=1), axis=0, return_inverse=True
    )
    extended = _with_named(problem, pairs)
    fractions = np.zeros((len(extended.combinations), len(problem.accelerator_types)))
    fractions[entries] = fraction[:begun]
    fractions[len(problem.combinations) + row_of.reshape(-1), columns.types[used]] = fraction[used]
    at_most = solved.time_price.sum() + solved.worker_price @ problem.capacity_workers
    bound = float(at_most - solved.floor_price @ market.floors.least)
    gap = max(0.0, bound - float(columns.worth(market.per_step) @ fraction)) / max(bound, 1e-300)
    broken_by = max(measures.violation(extended, fractions), _missed(market.floors, extended, fractions))
    if not (broken_by <= MOST_VIOLATION and gap <= MOST_VIOLATION):
        return None
    certificate = Certificate(primal_violation=broken_by, dual_gap=gap)
    return named(extended, fractions, certificate, policy, SOLVER)


def _missed(floors: Floors, problem: AllocationProblem, fractions: FloatArray) -> float:
    """How far `fractions` are below a floor, at most; 0 if none is missed."""
    got = floors.per_step * measures.effective_throughput(problem, fractions)
    of_rows = np.zeros(len(floors.least) + 1)
    for rows in floors.rows_of_job.T:
        np.add.at(of_rows, rows, got)
    return float(np.max(floors.least - of_rows[:-1], initial=0.0))


def _with_named(problem: AllocationProblem, pairs: IntArray) -> AllocationProblem:
    """`problem` with `pairs` (p, 2) as combinations of their own, behind the others."""
    if problem.pair_rates is None:
        return problem
    rates = rates_of_pairs(problem, problem.pair_rates, pairs)
    return replace(
        problem,
        combinations=problem.combinations + tuple((first, second) for first, second in pairs.tolist()),
        throughput_steps_per_s=np.concatenate([problem.throughput_steps_per_s, rates]),
    )
