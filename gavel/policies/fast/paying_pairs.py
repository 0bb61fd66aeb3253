"""The pairs of jobs that gain most beyond their prices, found kind by kind, not pair by pair.

What a pair of jobs a and b gains on a type is a part of a's, a part of b's, and the price of their workers:

    (w_a r_ab - u_a) + (w_b r_ba - u_b) - s p

for w what a step of a job is worth, u the price of its time, and rates r that two kinds have. So of any two kinds the
members count in the order of their parts: if the best of both do not pay together, no pair of these kinds does. Those
that enter are the members at the same places of both orders and at neighbouring ones, so that jobs enter with
different partners.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gavel.policies import measures
from gavel.types import AllocationProblem, BoolArray, FloatArray, IntArray

NEIGHBOURS = (-1, 0, 1)  # places in the order of the one kind, from that in the order of the other


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """v variables: `first` and `second` job (-1: none) and type of each, (v,), and the rates of both, (v, 2)."""

    first: IntArray
    second: IntArray
    types: IntArray
    rates: FloatArray

    def and_(self, more: "Columns") -> "Columns":
        """These, then `more`."""
        return Columns(
            np.concatenate([self.first, more.first]),
            np.concatenate([self.second, more.second]),
            np.concatenate([self.types, more.types]),
            np.concatenate([self.rates, more.rates]),
        )

    def worth(self, per_step: FloatArray) -> FloatArray:
        """What a unit of each is worth, (v,), where a step of each job is worth `per_step` (n,)."""
        both: FloatArray = per_step[self.first] * self.rates[:, 0] + per_step[self.second] * self.rates[:, 1]
        return both


class PairPrices(NamedTuple):
    """What a step of each job is worth, (n,), the prices of each job's time, (n,), and of each type's worker, (m,)."""

    step: FloatArray
    time: FloatArray
    worker: FloatArray


class Pairs:
    """Every pair that the `pair_rates` of a problem allow."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._scale = problem.scale_factor
        self._jobs: IntArray = np.zeros(0, dtype=np.int64)  # those with a kind, kind by kind
        if problem.pair_rates is None:
            return
        self._rates, of_job = problem.pair_rates.steps_per_s, problem.pair_rates.kind_of_job
        self._jobs = np.argsort(of_job, kind="stable")[(of_job < 0).sum() :]
        self._kind = of_job[self._jobs]
        self._alone = (measures.rate_alone(problem) > 0)[self._jobs]
        self._starts = np.searchsorted(self._kind, np.arange(len(self._rates) + 1))

    def paying(self, prices: PairPrices, least: float, most: int) -> Columns:
        """Return up to `most` pairs that gain more than `least` each, those that gain most; none only if none does."""
        if not len(self._jobs):
            return Columns(self._jobs, self._jobs, self._jobs, np.zeros((0, 2)))
        entering = [each for kind in np.unique(self._kind) for each in self._with(kind, prices, least)]
        one, other, types, gain = (np.concatenate(each) for each in zip(*entering, strict=True))
        best = np.arange(len(gain)) if len(gain) <= most else np.sort(np.argpartition(-gain, most)[:most])
        is_first = self._jobs[one[best]] < self._jobs[other[best]]
        a, b = np.where(is_first, one[best], other[best]), np.where(is_first, other[best], one[best])
        kinds, types = (self._kind[a], self._kind[b]), types[best]
        rates = np.column_stack([self._rates[(*kinds, types)], self._rates[(*kinds[::-1], types)]])
        return Columns(self._jobs[a], self._jobs[b], types, rates)

    def _with(
        self, kind: int, prices: PairPrices, least: float
    ) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """The pairs with jobs of this kind that may enter, of this and later kinds: both members, type and gain."""
        begin, end = self._starts[kind], self._starts[kind + 1]
        members, later = np.arange(begin, end), np.arange(begin, len(self._jobs))
        own = self._parts(members, self._rates[kind], prices)  # (members, kinds, m)
        order = np.argsort(-own, axis=0, kind="stable")
        own = np.take_along_axis(own, order, axis=0)
        of_later = self._kind[later]
        theirs = self._parts(later, self._rates[of_later, kind][:, None, :], prices)[:, 0]
        fits = self._scale[self._jobs[later]] == self._scale[self._jobs[begin]]
        for column, price in enumerate(self._scale[self._jobs[begin]] * prices.worker):
            part = np.where(fits, theirs[:, column], -np.inf)
            may_pay = np.flatnonzero(part + own[0, of_later, column] - price > least)  # with the best of this kind
            by_kind = may_pay[np.lexsort((-part[may_pay], of_later[may_pay]))]
            partner, of_partner, part = later[by_kind], of_later[by_kind], part[by_kind]
            for index, place in _places(of_partner, of_partner == kind, len(members)):
                at = place, of_partner[index], column
                gain = own[at] + part[index] - price
                pays = np.flatnonzero(gain > least)
                yield members[order[at][pays]], partner[index][pays], np.full(len(pays), column), gain[pays]

    def _parts(self, jobs: IntArray, rates: FloatArray, prices: PairPrices) -> FloatArray:
        """What `jobs` (j,) gain beyond the price of their time at `rates` (.., m) with each partner, (j, .., m)."""
        ids = self._jobs[jobs]
        gain = prices.step[ids][:, None, None] * rates - prices.time[ids][:, None, None]
        return np.where((rates > 0) & self._alone[jobs][:, None, :], gain, -np.inf)


def _places(kinds: IntArray, is_own: BoolArray, members: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Indices of jobs, which are kind by kind and in order, and for each its partner's place of so many `members`."""
    rank = np.arange(len(kinds)) - np.searchsorted(kinds, kinds)
    for shift in NEIGHBOURS:
        place = rank + shift + 2 * is_own  # of its own kind one after it: nobody is a partner of its own
        index = np.flatnonzero((place >= 0) & (place < members))
        yield index, place[index]
