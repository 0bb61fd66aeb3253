"""What each job's target costs at given prices of the accelerator types: the lower envelopes of the price method.

Job i reaches value a by sharing its time over the types; at prices p >= 0 the cheapest way costs c_i(a, p), the lower
convex envelope of the points (0, 0) and (A_ij, s_i p_j). It is found by gift wrapping: from the corner reached so far,
the type of the least slope comes next. Between two corners a job mixes their two types, so it never needs a third.

n jobs (or classes of identical ones), m accelerator types, type-major arrays (m, n): the loops are over types. Where a
policy shares out sizes, too, there is a column for each type and size in place of one for each type: a job of scale 1
holds as many workers of the type as the size says, at so many times its price. What is said of types in loops and
arrays of this method then holds of the columns; only workers and their prices stay those of types.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gavel.policies.fast.blocks import blocks
from gavel.types import BoolArray, FloatArray, IntArray

FEW = 1_000  # jobs


@dataclass(frozen=True, eq=False)
class Market:
    """What is asked for and what there is: `rates` (m, n) value per unit of time, `scale` (n,) workers, `workers` (m,).

    The best rate of every job is positive. With columns of types and sizes `rates` is (columns, n), and `sizes` says
    which they are.
    """

    rates: FloatArray
    scale: FloatArray
    workers: FloatArray
    sizes: "SizeColumns | None" = None

    @cached_property
    def best(self) -> FloatArray:
        """The most each job can reach, (n,)."""
        most: FloatArray = self.rates.max(axis=0)
        return most

    def of(self, jobs: IntArray, part: float = 1.0) -> "Market":
        """These jobs alone, with a `part` of the workers."""
        return Market(self.rates[:, jobs], self.scale[jobs], self.workers * part, self.sizes)

    @property
    def type_of_columns(self) -> IntArray:
        """The type of each column, (m,) or (columns,)."""
        return np.arange(len(self.workers)) if self.sizes is None else self.sizes.type_index

    def of_segments(self, type_of: IntArray, workers: FloatArray) -> tuple["Market", IntArray]:
        """The market of the types `type_of` (k,), each of `workers` (k,), and the column here of each of its columns.

        A type may be there several times, in segments, or not at all.
        """
        if self.sizes is None:
            return Market(self.rates[type_of], self.scale, workers), type_of
        segment, column = np.nonzero(self.sizes.type_index == type_of[:, None])
        sizes = SizeColumns(segment, self.sizes.size[column], len(type_of))
        return Market(self.rates[column], self.scale, workers, sizes), column

    def column_prices(self, prices: FloatArray) -> FloatArray:
        """What a job of scale 1 pays for a column, at `prices` (m,) of the types."""
        return prices if self.sizes is None else self.sizes.of_columns(prices)

    def of_types(self, held: FloatArray) -> FloatArray:
        """The workers of each type, (m, ..), of what jobs hold by column; they count by their scale already."""
        return held if self.sizes is None else self.sizes.of_types(held)


@dataclass(frozen=True, slots=True, eq=False)
class SizeColumns:
    """Columns (q,), each a type and a size: `type_index` (q,) of m `types`, and `size` (q,) workers of it."""

    type_index: IntArray
    size: FloatArray
    types: int

    @classmethod
    def of_one(cls, types: int) -> "SizeColumns":
        """Return the columns of `types` where there is no other size than 1."""
        return cls(np.arange(types), np.ones(types), types)

    @property
    def held(self) -> FloatArray:
        """The workers of each type that a column holds, (m, q)."""
        return np.eye(self.types)[:, self.type_index] * self.size

    def of_columns(self, of_types: FloatArray) -> FloatArray:
        """What is so much for a worker of each type, (.., m), by column, (.., q)."""
        return of_types[..., self.type_index] * self.size

    def of_types(self, of_columns: FloatArray) -> FloatArray:
        """The workers of each type, (m, ..), that columns hold which are used so much, (q, ..)."""
        return self.held @ of_columns


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One segment of the envelopes of `jobs` (k,): to the corner (`reach`, `cost`) of `kind`, at `slope`."""

    jobs: IntArray
    type_index: IntArray
    reach: FloatArray
    cost: FloatArray
    slope: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Vertex:
    """The cheapest way to the targets: time `share` (n,) on type `kind` (n,), the rest `before` on `kind_before`.

    `slope` (n,) is the price of a little more value, `rent` (n,) that of a little more time; `kind_before` is -1 and
    `before` 0 where one type will do.
    """

    type_index: IntArray
    share: FloatArray
    kind_before: IntArray
    before: FloatArray
    slope: FloatArray
    rent: FloatArray

    def used(self, scale: FloatArray, types: int) -> FloatArray:
        """Jobs that use each type, (m,), counted by their `scale` (n,): the workers held where columns are types."""
        mixed = (self.kind_before >= 0).nonzero()[0]
        held = np.bincount(self.type_index, scale * self.share, types).astype(float)
        return held + np.bincount(self.kind_before[mixed], scale[mixed] * self.before[mixed], types)

    def of_types(self, types: int) -> FloatArray:
        """The time fractions as a matrix (m, n)."""
        fractions = np.zeros((types, len(self.type_index)))
        mixed = (self.kind_before >= 0).nonzero()[0]
        fractions[self.kind_before[mixed], mixed] = self.before[mixed]
        fractions[self.type_index, np.arange(len(self.type_index))] += self.share
        return fractions


class Envelopes:
    """The envelopes of every job of `market` at `prices` (m,), followed as far as `most` (n,)."""

    def __init__(self, market: Market, prices: FloatArray, most: FloatArray) -> None:
        self.market, self.prices = market, prices
        self._paid = prices = market.column_prices(prices)
        jobs = np.arange(len(market.scale))
        here = np.zeros(len(jobs))
        step = _next(market.rates, market.scale, prices, jobs, here, here)
        self.steps = [step]
        while True:
            further = (step.reach < most[step.jobs]).nonzero()[0]
            further = further[step.reach[further] < market.best[step.jobs[further]]]
            if not len(further):
                return
            jobs = step.jobs[further]
            step = _next(
                market.rates[:, jobs], market.scale[jobs], prices, jobs, step.reach[further], step.cost[further]
            )
            self.steps.append(step)

    def cost(self, targets: FloatArray) -> tuple[float, FloatArray]:
        """What `targets` (n,) cost together, and the price (n,) of a little less of each."""
        first = self.steps[0]
        total, slope = float(np.minimum(targets, first.reach) @ first.slope), first.slope
        reach = first.reach
        for step in self.steps[1:]:
            beyond = targets[step.jobs] - reach[step.jobs]
            passed = (beyond > 0).nonzero()[0]
            if not len(passed):
                break
            if slope is first.slope:
                slope, reach = slope.copy(), reach.copy()
            jobs = step.jobs[passed]
            length = step.reach[passed] - reach[jobs]
            total += float(np.minimum(beyond[passed], length) @ step.slope[passed])
            slope[jobs] = step.slope[passed]
            reach[jobs] = step.reach[passed]
        return total, slope

    def rising_price(self, targets: FloatArray) -> FloatArray:
        """The price (n,) of a little more than `targets`; at a job's best rate the last one."""
        return self.cost(targets * (1 + 1e-9) + 1e-300)[1]

    def vertex(self, targets: FloatArray) -> Vertex:
        """The cheapest way to `targets` (n,), none above what the envelopes were followed to."""
        first = self.steps[0]
        type_index, before = first.type_index.copy(), np.zeros_like(targets)
        share = np.minimum(1.0, targets / first.reach)
        kind_before = np.full(len(targets), -1)
        slope, rent = first.slope.copy(), np.zeros_like(targets)
        previous = first
        for step in self.steps[1:]:
            place = previous.jobs.searchsorted(step.jobs)
            reach, cost = previous.reach[place], previous.cost[place]
            passed = (targets[step.jobs] > reach).nonzero()[0]
            jobs = step.jobs[passed]
            part = (targets[jobs] - reach[passed]) / (step.reach[passed] - reach[passed])
            kind_before[jobs], type_index[jobs] = previous.type_index[place][passed], step.type_index[passed]
            share[jobs] = np.minimum(1.0, part)
            before[jobs] = 1.0 - share[jobs]
            slope[jobs] = step.slope[passed]
            rent[jobs] = step.slope[passed] * reach[passed] - cost[passed]
            previous = step
        return Vertex(type_index, share, kind_before, before, slope, rent)

    def margin(self, vertex: Vertex) -> FloatArray:
        """How far, relatively, prices may move before each job's way changes, (n,) in [0, 1]."""
        rates, scale = self.market.rates, self.market.scale
        least = np.empty(len(scale))
        mixed = (vertex.kind_before >= 0).nonzero()[0]
        for some in blocks(len(least)):
            paid = scale[some] * self._paid[:, None] + vertex.rent[some]
            gained = vertex.slope[some] * rates[:, some]
            apart = (paid - gained) / np.maximum(paid + gained, 1e-300)
            apart[rates[:, some] <= 0] = 1.0
            apart[vertex.type_index[some], np.arange(apart.shape[1])] = 1.0
            before = vertex.kind_before[some]
            of_two = (before >= 0).nonzero()[0]
            apart[before[of_two], of_two] = 1.0
            least[some] = apart.min(axis=0)
        least = np.minimum(least, 1.0)
        if len(mixed):
            value = vertex.slope[mixed] * rates[vertex.type_index[mixed], mixed]
            single = np.divide(vertex.rent[mixed], value, out=np.zeros_like(value), where=value > 0)
            least[mixed] = np.minimum(least[mixed], single)
        return least

    def cheapest(self, vertex: Vertex, tolerance: float) -> BoolArray:
        """The types (m, n) that some cheapest way uses, up to a relative `tolerance` of the prices."""
        paid = self.market.scale * self._paid[:, None] + vertex.rent
        gained = vertex.slope * self.market.rates
        within: BoolArray = (self.market.rates > 0) & (paid - gained <= tolerance * (paid + gained))
        return within


def _next(
    rates: FloatArray, scale: FloatArray, prices: FloatArray, jobs: IntArray, here: FloatArray, paid: FloatArray
) -> _Step:
    """From the corners (`here`, `paid`) the segments of least slope; of equal ones the longest."""
    if len(jobs) <= FEW:
        return _next_at_once(rates, scale, prices, jobs, here, paid)
    type_index = np.zeros(len(jobs), dtype=np.int64)
    reach, cost, slope = np.empty_like(here), np.empty_like(here), np.empty_like(here)
    with np.errstate(divide="ignore", invalid="ignore"):
        for some in blocks(len(jobs)):
            least, far = np.full_like(here[some], np.inf), here[some]
            for index, price in enumerate(prices):
                rate, length = rates[index, some], rates[index, some] - here[some]
                candidate = (scale[some] * price - paid[some]) / length
                better = ((candidate < least) | ((candidate == least) & (rate > far))) & (length > 0)
                least, far = np.where(better, candidate, least), np.where(better, rate, far)
                type_index[some][better] = index
            reach[some], slope[some], cost[some] = far, least, scale[some] * prices[type_index[some]]
    return _Step(jobs, type_index, reach, cost, slope)


def _next_at_once(
    rates: FloatArray, scale: FloatArray, prices: FloatArray, jobs: IntArray, here: FloatArray, paid: FloatArray
) -> _Step:
    """The same over all types at once: for few jobs it is the calls that take the time."""
    length, cost, every = rates - here, scale * prices[:, None], np.arange(len(jobs))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(length > 0, (cost - paid) / length, np.inf)
    least = slope.min(axis=0)
    type_index = np.where((slope == least) & (length > 0), rates, -1.0).argmax(axis=0)
    return _Step(jobs, type_index, rates[type_index, every], cost[type_index, every], least)
