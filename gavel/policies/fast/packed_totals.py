"""The greatest total worth where jobs may be packed two on the same workers: pairs enter as they pay.

n jobs make n²/2 pairs, of which few are ever worth their members' time. So the linear program begins without them:

1. solve over the combinations that the problem names; its multipliers price each job's time and each type's workers;
2. of the pairs that are worth more than both their members' time and their workers, the best enter the program, which
   goes on from its last basis;
3. when no such pair is left, the prices bound the total over all pairs, named or not, and the answer attains them.

Column generation (Gilmore and Gomory, Operations Research 9:6, 1961) for space sharing (Gavel, OSDI '20, section 3.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.policies import measures
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
}
KEPT_JOBS = 1024
BLOCK = 256  # jobs whose pairs are listed together: bounds memory at 256 n m


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """v variables: `first` and `second` job (-1: none), type and worth of each, (v,)."""

    first: IntArray
    second: IntArray
    types: IntArray
    worth: FloatArray

    def and_(self, more: "_Columns") -> "_Columns":
        """These, then `more`."""
        return _Columns(
            np.concatenate([self.first, more.first]),
            np.concatenate([self.second, more.second]),
            np.concatenate([self.types, more.types]),
            np.concatenate([self.worth, more.worth]),
        )

    def part(self, chosen: Any) -> "_Columns":
        """Some of them."""
        return _Columns(self.first[chosen], self.second[chosen], self.types[chosen], self.worth[chosen])


_NONE = _Columns(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def packed_greatest(problem: AllocationProblem, per_step: FloatArray, policy: str) -> Allocation | None:
    """Return the allocation with the greatest sum of `per_step` (n,) times steps per second, over jobs and pairs.

    Pairs are those that the problem names and all that its `pair_rates` allow; the allocation names the ones that it
    uses behind the problem's own combinations. None where a program has to answer: nothing is worth anything, or the
    certificate is over 1e-6. `problem` is checked already.
    """
    worth = measures.value_per_time(problem, per_step[:, None])
    rows, types = np.nonzero(worth > 0)
    if not len(rows):
        return None
    members = measures.member_of(problem)[rows]
    begun = _Columns(members[:, 0], members[:, 1], types, worth[rows, types])
    market = _Market(problem)
    columns, pairs = market.take(begun), _Pairs.of(problem, per_step)
    for _ in range(MOST_PASSES):
        solved = market.solve()
        if solved is None:
            return None
        entering = pairs.paying(solved)
        if not len(entering.first):
            return _checked(problem, columns, len(begun.first), (rows, types), solved, policy)
        columns = columns.and_(market.take(entering))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """Fraction of each variable (v,), price of each job's time (n,) and of each type's worker (m,)."""

    fraction: FloatArray
    time_price: FloatArray
    worker_price: FloatArray


class _Market:
    """The linear program so far, kept in the solver from pass to pass with its basis."""

    def __init__(self, problem: AllocationProblem) -> None:
        import highspy

        self._jobs = len(problem.job_ids)
        self._scale = problem.scale_factor.astype(float)
        self._unit = 0.0
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in OPTIONS.items():
            self._solver.setOptionValue(name, value)
        limits = np.concatenate([np.ones(self._jobs), problem.capacity_workers.astype(float)])
        none = np.zeros(0, dtype=np.int32)
        starts = np.zeros(len(limits), dtype=np.int32)
        self._solver.addRows(len(limits), np.full(len(limits), -np.inf), limits, 0, starts, none, np.zeros(0))
        self._optimal = highspy.HighsModelStatus.kOptimal

    def take(self, columns: _Columns) -> _Columns:
        """Add the variables; `columns` again."""
        self._unit = self._unit or float(columns.worth.max())
        is_pair = columns.second >= 0
        ends = np.cumsum(2 + is_pair).astype(np.int32)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int32)
        rows, values = np.empty(ends[-1], dtype=np.int32), np.ones(ends[-1])
        rows[starts] = columns.first
        rows[starts[is_pair] + 1] = columns.second[is_pair]
        rows[ends - 1] = self._jobs + columns.types
        values[ends - 1] = self._scale[columns.first]
        free = np.full(len(starts), np.inf)
        cost = -columns.worth / self._unit
        self._solver.addCols(len(starts), cost, np.zeros(len(starts)), free, len(rows), starts, rows, values)
        return columns

    def solve(self) -> _Solved | None:
        """The best fractions and their prices; None unless the solver says that they are optimal."""
        self._solver.run()
        if self._solver.getModelStatus() != self._optimal:
            return None
        answer = self._solver.getSolution()
        prices = np.maximum(0.0, -np.array(answer.row_dual)) * self._unit
        return _Solved(np.array(answer.col_value), prices[: self._jobs], prices[self._jobs :])


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Every pair that `pair_rates` allow and no combination names, with its worth; kept while that is small."""

    problem: AllocationProblem
    per_step: FloatArray
    kept: list[_Columns]

    @classmethod
    def of(cls, problem: AllocationProblem, per_step: FloatArray) -> "_Pairs":
        """Of up to KEPT_JOBS jobs the pairs are listed once, of more anew for each pass, a block at a time."""
        pairs = cls(problem, per_step, [])
        if len(per_step) <= KEPT_JOBS:
            pairs.kept.extend(pairs._listed())
        return pairs

    def paying(self, solved: _Solved) -> _Columns:
        """Step 2: those that gain most beyond their prices."""
        scale = self.problem.scale_factor
        least = PAYS * float(solved.time_price.max(initial=0.0) + solved.worker_price.max(initial=0.0))
        entering, gains = _NONE, [np.zeros(0)]
        for block in self.kept or self._listed():
            price = solved.time_price[block.first] + solved.time_price[block.second]
            gain = block.worth - price - scale[block.first] * solved.worker_price[block.types]
            pays = np.flatnonzero(gain > least)
            entering = entering.and_(block.part(pays))
            gains.append(gain[pays])
        most, gain = ENTERING_PER_JOB * len(self.per_step), np.concatenate(gains)
        return entering if len(gain) <= most else entering.part(np.sort(np.argpartition(-gain, most)[:most]))

    def _listed(self) -> Iterator[_Columns]:
        """A block of first members at a time; the second comes later in the problem."""
        if self.problem.pair_rates is None:
            return
        kind, rates = self.problem.pair_rates.kind_of_job, self.problem.pair_rates.steps_per_s
        alone, scale, jobs = measures.rate_alone(self.problem) > 0, self.problem.scale_factor, np.arange(len(kind))
        for begin in range(0, len(kind), BLOCK):
            a = jobs[begin : begin + BLOCK, None]
            b = jobs[None, begin:]
            own, other = rates[kind[a], kind[b]], rates[kind[b], kind[a]]
            may = (own > 0) & (other > 0) & alone[a] & alone[b]
            may &= ((kind[a] >= 0) & (kind[b] >= 0) & (a < b) & (scale[a] == scale[b]))[:, :, None]
            worth = own * self.per_step[a][:, :, None] + other * self.per_step[b][:, :, None]
            rows, columns, types = np.nonzero(may)
            yield _Columns(rows + begin, columns + begin, types, worth[rows, columns, types])


def _checked(
    problem: AllocationProblem,
    columns: _Columns,
    named_already: int,
    entries: tuple[IntArray, IntArray],
    solved: _Solved,
    policy: str,
) -> Allocation | None:
    """Step 3: the answer with its pairs named, or None if it breaks a limit or does not attain its bound."""
    fraction = np.clip(solved.fraction, 0.0, 1.0)
    used = np.flatnonzero(fraction[named_already:] > NEGLIGIBLE) + named_already
    pairs, row_of = np.unique(
        np.stack([columns.first[used], columns.second[used]], axis=1), axis=0, return_inverse=True
    )
    extended = _with_named(problem, pairs)
    fractions = np.zeros((len(extended.combinations), len(problem.accelerator_types)))
    fractions[entries] = fraction[:named_already]
    fractions[len(problem.combinations) + row_of.reshape(-1), columns.types[used]] = fraction[used]
    bound = float(solved.time_price.sum() + solved.worker_price @ problem.capacity_workers)
    gap = max(0.0, bound - float(columns.worth @ fraction)) / max(bound, 1e-300)
    certificate = Certificate(primal_violation=measures.violation(extended, fractions), dual_gap=gap)
    if not (certificate.primal_violation <= MOST_VIOLATION and gap <= MOST_VIOLATION):
        return None
    return named(extended, fractions, certificate, policy, SOLVER)


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
