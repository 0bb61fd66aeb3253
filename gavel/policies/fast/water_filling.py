"""Water filling by prices: at most one level for each accelerator type.

The answer is the lexicographic one of Gavel (OSDI '20, section 4.3). Until nobody can rise:

1. find the largest level of the target map between what each job has and what it can still reach;
2. at the prices p that prove it to be the largest, the targets cost all workers, sum_i c_i = p . N. So in every valid
   allocation that reaches them the types with a price are full, and every job gets its target in the cheapest way;
3. a job that would have to pay for more cannot rise: it stops. If its cheapest way is the only one, it is settled and
   leaves the market with the workers it holds; else it keeps its cheapest types, to be arranged with the others;
4. a job that would not have to pay uses free types only, and from now on can use no others.

Each level prices a new type. Nothing is left of the types that are full but what the stopped jobs must share exactly,
so congestion counts mostly the others: or it would be stuck at 1 from the first full type on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies.fast.envelope import Envelopes, Market
from gavel.policies.fast.price_search import Guess, Reached, how_far
from gavel.policies.fast.targets import TargetMap
from gavel.types import BoolArray, FloatArray, IntArray

PRICED = 1e-7  # of all workers' price together
STUCK = 1e-7  # of what a worker costs on average
ONE_WAY = 1e-6  # relative margin of prices within which a job's cheapest way is the only one
ELASTIC_WHEN_FULL = 1e-2
RISE = 1e-10
NOISE = 1e-10  # less of a job's time than this is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """`prices` (m,) at which `targets` (k,) cost all workers of `market`: no more along the map is valid.

    `workers` (m,) are those of the whole cluster, `level` that of the map.
    """

    level: float
    prices: FloatArray
    workers: FloatArray
    market: Market
    targets: FloatArray

    def unpaid(self) -> float:
        """What the targets leave of the price of the market's workers, over that of all: 0 for a perfect proof."""
        budget = float(self.prices @ self.market.workers)
        cost, _ = Envelopes(self.market, self.prices, self.targets).cost(self.targets)
        return max(0.0, (budget - cost) / float(self.prices @ self.workers))


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """`value` (n,) of each job, `fractions` (m, n) that give it, and a proof for each level.

    `apart`: how far, relatively, a second criterion may be from its best.
    """

    value: FloatArray
    fractions: FloatArray
    proofs: tuple[Proof, ...]
    apart: float = 0.0

    @property
    def is_only_one(self) -> bool:
        """Whether the first proof prices every type: then nobody's value can be another one at that level."""
        paid = [proof.prices * proof.workers for proof in self.proofs[:1]]
        return bool(paid and (paid[0] > PRICED * float(paid[0].sum())).all())

    def gap(self, market: Market) -> float:
        """How far this is from its own proof: value not delivered, or workers that a proof leaves unpaid; relative."""
        got = (market.rates * self.fractions).sum(axis=0)
        short = (self.value - got) / np.maximum(self.value, 1e-4 * market.best)
        return max([self.apart, float(short.max(initial=0.0)), *(proof.unpaid() for proof in self.proofs)])


def fill(
    market: Market,
    *maps: TargetMap,
    start: FloatArray | None = None,
    levels: int | None = None,
    guesses: Sequence[Guess] = (),
) -> Filled:
    """Fill along the last of `maps` within at most `levels` (default: until nobody can rise), one level of each before.

    `start` (n,): what each job keeps (default: nothing). `guesses`: where to begin each level. Raises SolveFailed.
    """
    filling = _Filling(market, np.zeros(len(market.scale)) if start is None else start, guesses)
    for target_map in maps[:-1]:
        filling.rise(target_map)
    for _ in range(len(market.workers) + 1 if levels is None else levels):
        if not filling.rise(maps[-1]):
            break
    fractions = np.where(filling.fractions < NOISE, 0.0, filling.fractions)
    return Filled(filling.value, fractions, tuple(filling.proofs))


class _Filling:
    """Where water filling stands: `jobs` (k,) are those in the `market`, the others are settled."""

    def __init__(self, market: Market, start: FloatArray, guesses: Sequence[Guess]) -> None:
        self.market, self.guesses = market, guesses
        self.value = start
        self.cap = np.maximum(start, market.best)
        self.jobs = np.arange(len(market.scale))
        self.full = np.zeros(len(market.workers), dtype=bool)
        self.whole = market.workers
        self.fractions = np.zeros(market.rates.shape)
        self.proofs: list[Proof] = []

    def rise(self, target_map: TargetMap) -> bool:
        """One level; whether another of the same map may follow."""
        if self.full.all():
            return False
        targets = target_map(self.value, self.cap).of(self.jobs)
        if targets.end <= 0 or not (self.cap > self.value * (1 + RISE)).any():
            return False
        level = len(self.proofs)
        guess = self.guesses[level] if level < len(self.guesses) else None
        elastic = np.where(self.full, ELASTIC_WHEN_FULL, 1.0) * self.whole
        even = np.where(self.full, 0.0, 1.0)
        reached = how_far(self.market, elastic, targets, even, guess)
        self.value = self.value.copy()
        self.value[self.jobs] = reached.value
        self.fractions[:, self.jobs] = reached.fractions
        if reached.prices is None:
            return False
        self.proofs.append(Proof(reached.level, reached.prices, self.whole, self.market, reached.targets))
        paid = reached.prices * self.whole
        priced = paid > PRICED * float(paid.sum())
        if not (priced & ~self.full).any():
            raise SolveFailed("a level of water filling priced no further type")
        self.full = self.full | priced
        if not self.full.all():
            self._settle(reached, np.where(priced, reached.prices, 0.0))
        return True

    def _settle(self, reached: Reached, prices: FloatArray) -> None:
        """Steps 3 and 4: who stops, who leaves, and which types are left to the others."""
        market, value = self.market, reached.value
        priced_at = Envelopes(market, prices, np.minimum(market.best, value * (1 + 2e-9) + 1e-300))
        worker = float(prices @ self.whole / self.whole.sum())
        stuck = priced_at.rising_price(value) * market.best > STUCK * worker * market.scale
        stuck |= self.cap[self.jobs] <= value * (1 + RISE)  # at an earlier level: what is full is still its way
        vertex = priced_at.vertex(value)
        settled = stuck & (priced_at.margin(vertex) > ONE_WAY)
        ways = np.where(stuck, priced_at.cheapest(vertex, ONE_WAY), self._is_free(market)[:, None])
        rates = market.rates * ways
        cap = np.where(stuck, value, np.maximum(value, rates.max(axis=0)))
        settled |= (cap <= 0) | (rates.max(axis=0) <= 0)
        self.cap = self.cap.copy()
        self.cap[self.jobs] = cap
        self._leave(np.flatnonzero(settled), reached.fractions[:, settled], rates)

    def _is_free(self, market: Market) -> BoolArray:
        """Which columns of the market are of a type that is not full."""
        is_free: BoolArray = ~self.full if market.sizes is None else ~self.full[market.sizes.type_index]
        return is_free

    def _leave(self, settled: IntArray, ways: FloatArray, rates: FloatArray) -> None:
        """Settled jobs leave the market with the workers that they hold in their `ways` (m, settled)."""
        stay: BoolArray = np.ones(len(self.jobs), dtype=bool)
        stay[settled] = False
        left = np.maximum(0.0, self.market.workers - self.market.of_types(ways @ self.market.scale[settled]))
        self.jobs = self.jobs[stay]
        self.market = replace(self.market, rates=rates[:, stay], scale=self.market.scale[stay], workers=left)
