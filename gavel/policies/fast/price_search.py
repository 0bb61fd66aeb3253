"""The price method: how far along a target map valid allocations go, exactly and with a proof.

For any prices p >= 0 of the accelerator types, targets that cost more than the workers, sum_i c_i(tau_i, p) > p . N,
cannot be reached. So each price vector bounds the level, and the best bound is attained:

1. start from last round's prices, or from those of a sample of the jobs, or from even ones;
2. the level is the largest that the prices can pay for (Newton on the cost, guarded by bisection); it only falls;
3. price every job there; those whose cheapest way would change with a small change of the prices are ambiguous;
4. give the ambiguous jobs their targets at the least congestion z, the others staying at their cheapest way; the
   multipliers of the capacity are the next prices;
5. z <= 1: the level is reached, and the prices that bound it prove that no more can be. Else, if the next prices
   prove the level too high over all jobs, go to 2 with them and a narrower band; if not, widen the set.

The band narrows with the change of the prices, until a simplex solves the last few jobs exactly.
"""

from dataclasses import dataclass, replace

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies.fast.congestion import Answer, Congestion, by_interior_point, by_simplex
from gavel.policies.fast.envelope import Envelopes, Market, Vertex
from gavel.policies.fast.job_classes import classes
from gavel.policies.fast.targets import Targets
from gavel.types import FloatArray, IntArray

TOLERANCE = 1e-9  # of the congestion
LOOSE_TOLERANCE = 2e-8  # accepted where many jobs stay ambiguous, as among types that are all alike
MEANT = 100.0  # prices of a coarse answer prove the congestion to so many times COARSE; others are of too few jobs
COARSE, FINE = 1e-6, 0.1 * TOLERANCE  # of the interior point, before its prices are nearly right and after
MOST_ROUNDS = 40
MOST_BY_SIMPLEX = 300  # jobs; beyond, an interior point is faster
FEW = 1000  # jobs for which a coarse answer saves nothing
MOST_BY_INTERIOR_POINT = 3000  # at first

ALL_AT_ONCE = 800  # jobs; with more, prices from samples come first
LEAST_SAMPLE, GROWTH, LEAST_PER_SAMPLE = 300, 5, 10
FIRST_ROUNDS, SAMPLE_TOLERANCE = 2, 1e-2

WARM_BAND, WARM_LEVEL = 0.6, 1.03  # over the square root of the jobs; times the last level
WIDTH = 0.1  # of the band, over the last change of the prices
WIDER = 3.0
AFTER_COARSE = 0.03
LEAST_BAND, FRESH_BAND = 1e-6, 1e-4
PINNED = 1 - 1e-9
ROUNDING, ROUGH = 1e-12, 1e-2  # relative, of the budget: of an answer, and of a sample
MOST_LEVELS, UNPAID_AFTER = 200, 4  # levels looked at for the same prices; after so many, whether any is paid for


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """Where to begin: `prices` (m,) and the level that they led to, such as the last round's; wrong ones do no harm."""

    prices: FloatArray
    level: float = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """The largest `level` and its `targets` (n,), which are reached at `congestion` <= 1 + 2e-8.

    `fractions` (m, n) are within all workers and give `value`. `prices` (m,) prove that no higher level can be reached;
    None if the map ended first.
    """

    level: float
    targets: FloatArray
    fractions: FloatArray
    congestion: float
    prices: FloatArray | None

    @property
    def value(self) -> FloatArray:
        """The targets, but for what is over: that would be missing to the few who stay in the market."""
        given: FloatArray = self.targets / max(1.0, self.congestion)
        return given


def how_far(
    market: Market, elastic: FloatArray, targets: Targets, even: FloatArray, guess: Guess | None = None
) -> Reached:
    """Return the largest level of `targets` that valid allocations reach.

    `elastic` (m,) says how much of each type's workers one unit of congestion adds. To begin with: `guess`, or
    else prices `even` (m,). Raises SolveFailed.
    """
    return _Search(market, elastic, targets, even, guess).run()


class _Search:
    def __init__(
        self, market: Market, elastic: FloatArray, targets: Targets, even: FloatArray, guess: Guess | None
    ) -> None:
        self.market, self.elastic, self.targets = market, elastic, targets
        self.level = targets.end
        self.band = 1.0 if guess is None else WARM_BAND / np.sqrt(len(market.scale))
        self.limit = max(MOST_BY_INTERIOR_POINT, len(market.scale) // 20)
        self.prices = self._normal(even if guess is None else guess.prices)
        self.proof: FloatArray | None = None
        self.tolerance = COARSE
        self.different = 0  # jobs of the last question of the least congestion, those that are alike as one
        self.priced: Envelopes | None = None
        self.guess_of_level = np.inf if guess is None else guess.level * WARM_LEVEL
        self.low = 0.0  # the level that the last prices can pay for at least
        if guess is None and len(market.scale) > ALL_AT_ONCE:
            self._sample()

    def run(self) -> Reached:
        """Steps 2 to 5 until the level is reached."""
        for _ in range(MOST_ROUNDS):
            priced = self._lower()
            wanted = self.targets.at(self.level)
            vertex = priced.vertex(wanted)
            jobs = self._ambiguous(priced, vertex, wanted)
            answer = self._least_congestion(vertex, jobs, wanted)
            most = 1 + (LOOSE_TOLERANCE if self.tolerance <= FINE or self.different <= FEW else TOLERANCE)
            is_reached = answer.z <= 1 + TOLERANCE
            if is_reached or (not self._reprice(answer, wanted, len(jobs)) and answer.z <= most):
                fractions = vertex.of_types(len(self.market.rates))
                fractions[:, jobs] = answer.fractions / np.maximum(1.0, answer.fractions.sum(axis=0))
                return Reached(self.level, wanted, fractions / max(1.0, answer.z), answer.z, self.proof)
        raise SolveFailed(f"the price method did not settle within {MOST_ROUNDS} rounds")

    def _sample(self) -> None:
        """Step 1: rough prices from even samples of the jobs, each larger, on their part of the workers."""
        size, n = LEAST_SAMPLE, len(self.market.scale)
        while True:
            self._ask_sample(np.linspace(0, n - 1, size).astype(np.int64), FIRST_ROUNDS if size == LEAST_SAMPLE else 1)
            self.band = 1.5 / np.sqrt(size)
            self.guess_of_level *= 1 + 3 * self.band
            if GROWTH * size > n / LEAST_PER_SAMPLE:
                return
            size *= GROWTH

    def _ask_sample(self, sample: IntArray, rounds: int) -> None:
        part = float(self.market.scale[sample].sum() / self.market.scale.sum())
        market, targets, nothing = self.market.of(sample, part), self.targets.of(sample), np.zeros(len(self.elastic))
        level = targets.end
        for _ in range(rounds):
            priced = Envelopes(market, self.prices, targets.at(level))
            level = largest_paid(priced, targets, level, precision=ROUGH)
            wanted = targets.at(level)
            jobs = np.flatnonzero(wanted > 0)
            if len(jobs):
                asked, _ = _question(market.of(jobs), self.elastic * part, wanted[jobs], nothing)
                self.prices = self._normal(by_interior_point(asked, SAMPLE_TOLERANCE).prices)
        self.guess_of_level = level

    def _lower(self) -> Envelopes:
        """Step 2."""
        if self.guess_of_level < self.level:
            self._begin_at_guess()
        priced = self.priced
        if priced is None or priced.prices is not self.prices:
            priced = Envelopes(self.market, self.prices, self.targets.at(self.level))
        level = largest_paid(priced, self.targets, self.level, low=self.low)
        self.low = 0.0
        if level < self.level:
            self.level, self.proof = level, self.prices
        return priced

    def _begin_at_guess(self) -> None:
        """Where these prices cannot pay for the guess, the level is below it: the envelopes need not go further."""
        wanted = self.targets.at(self.guess_of_level)
        priced = Envelopes(self.market, self.prices, wanted)
        if priced.cost(wanted)[0] > float(self.prices @ self.market.workers) * (1 + ROUNDING):
            self.level, self.proof, self.priced = self.guess_of_level, self.prices, priced
        else:
            self.low = self.guess_of_level
        self.guess_of_level = np.inf

    def _ambiguous(self, priced: Envelopes, vertex: Vertex, wanted: FloatArray) -> IntArray:
        """Step 3: the jobs of small margin, the smallest if there are too many that are not alike."""
        if self.band >= 1:
            return np.flatnonzero(vertex.share > 0)
        margin = priced.margin(vertex)
        margin[vertex.share <= 0] = np.inf
        jobs = np.flatnonzero(margin < self.band)
        if len(jobs) > self.limit and self._different(jobs, wanted) > self.limit:
            jobs = jobs[np.argpartition(margin[jobs], self.limit)[: self.limit]]
        return jobs

    def _different(self, jobs: IntArray, wanted: FloatArray) -> int:
        """How many of the jobs ask for different things."""
        return len(classes([*self.market.rates[:, jobs], wanted[jobs]]).first)

    def _least_congestion(self, vertex: Vertex, jobs: IntArray, wanted: FloatArray) -> Answer:
        """Step 4."""
        others = self.market.scale.copy()
        others[jobs] = 0.0
        held = self.market.of_types(vertex.used(others, len(self.market.rates)))
        if not len(jobs):
            z = 1 + float(((held - self.market.workers) / self.elastic).max())
            return Answer(z, np.zeros((len(self.market.rates), 0)), self.prices)
        asked, unit = _question(self.market.of(jobs), self.elastic, wanted[jobs], held)
        if len(jobs) <= MOST_BY_SIMPLEX:  # at a vertex hardly a job is divided, alike or not: fewer gangs move
            answer = self._answered(asked)
            return replace(answer, prices=answer.prices / unit)
        kinds = asked.alike()
        answer = self._answered(asked.of(kinds))
        return replace(answer, fractions=answer.fractions[:, kinds.of_job], prices=answer.prices / unit)

    def _answered(self, asked: Congestion) -> Answer:
        self.different = size = len(asked.scale)
        exact = by_simplex(asked) if size <= MOST_BY_SIMPLEX else None
        if exact is not None:
            return exact
        close = by_interior_point(asked, self.tolerance if size > FEW else FINE)
        if close.is_settled or not MOST_BY_SIMPLEX < size <= FEW:
            return close
        return by_simplex(asked) or close  # types that these jobs cannot tell apart: slower, but exact

    def _reprice(self, answer: Answer, wanted: FloatArray, size: int) -> bool:
        """Step 5: take the next prices if they prove more, and set the band by how far they are from the last."""
        prices = self._normal(answer.prices)
        proven = self._least(prices, wanted)
        if proven > 1 + 0.1 * TOLERANCE:
            ratio = np.abs(prices - self.prices) / np.maximum(np.maximum(prices, self.prices), 1e-300)
            self.band = min(1.0, max(WIDTH * float(ratio[prices + self.prices > 1e-9].max(initial=0.0)), LEAST_BAND))
            self.prices = prices
            return True
        if (
            self.tolerance > FINE and self.different > FEW and proven > 1 - MEANT * COARSE
        ):  # they were meant to prove no more
            self.tolerance, self.band = FINE, max(LEAST_BAND, AFTER_COARSE * self.band)
            self.prices = prices
            return False
        self.prices = self._best_of(prices, proven, wanted)
        # where rounding has the upper hand, or all jobs were asked already: as few as possible again
        self.band = FRESH_BAND if self.band >= 1 or not answer.is_settled else min(1.0, WIDER * self.band)
        self.limit = 2 * max(self.limit, size)
        return False

    def _best_of(self, prices: FloatArray, proven: float, wanted: FloatArray) -> FloatArray:
        """Of the last prices, these, and the mean of both: those which prove most."""
        last = 1.0 if self.proof is self.prices else self._least(self.prices, wanted)
        middle = self._normal((prices + self.prices) / 2)
        if self._least(middle, wanted) > max(last, proven):
            return middle
        return prices if proven > last else self.prices

    def _least(self, prices: FloatArray, wanted: FloatArray) -> float:
        """The congestion that `prices` prove `wanted` to need at least."""
        self.priced = Envelopes(self.market, prices, wanted)
        cost, _ = self.priced.cost(wanted)
        return 1 + cost - float(prices @ self.market.workers)

    def _normal(self, prices: FloatArray) -> FloatArray:
        normal: FloatArray = prices / float(prices @ self.elastic)
        return normal


def largest_paid(
    priced: Envelopes, targets: Targets, high: float, *, low: float = 0.0, precision: float = 0.1 * ROUNDING
) -> float:
    """Return the largest level from `low` to `high` whose targets cost no more than all workers do.

    To a relative `precision` of that cost; `low` if nothing can be paid for. By Newton's method between two levels that
    are below and above, as far as it stays between them; else by where the straight line between these meets the
    budget, and every third time by their middle.
    """
    budget = float(priced.prices @ priced.market.workers) * (1 + ROUNDING)
    begin, level, short, beyond = low, low or high, -budget, np.inf
    for step in range(MOST_LEVELS):
        cost, slope = priced.cost(targets.at(level))
        over = cost - budget
        if (over <= 0 and level == high) or (over >= 0 and level == begin):
            return level
        if abs(over) <= precision * budget or high - low <= 1e-15 * high:
            return level
        low, short = (low, short) if over > 0 else (level, over)
        high, beyond = (level, over) if over > 0 else (high, beyond)
        rise = float(slope @ targets.slope(level))
        level = level - over / rise if rise > 0 else low if over > 0 else high
        if low < level < high:
            continue
        if beyond == np.inf:
            level = high
        elif low == begin and step == UNPAID_AFTER:
            level = low
        else:
            level = low + (short / (short - beyond) if step % 3 else 0.5) * (high - low)
    return high


def _question(market: Market, elastic: FloatArray, wanted: FloatArray, held: FloatArray) -> tuple[Congestion, float]:
    """The question of the least congestion in scaled numbers; its prices are to be divided by the second answer.

    A job whose target is its best rate has only its best types, and no limit on time beside: there is no interior.
    """
    unit = float(elastic.mean())
    best = market.best
    pinned = wanted >= best * PINNED
    usable = (market.rates > 0) & (~pinned | (market.rates >= best * PINNED))
    return Congestion(
        rates=market.rates / wanted,
        usable=usable,
        scale=market.scale / unit,
        room=np.where(pinned, 2.0, 1.0),
        free=(market.workers - elastic - held) / unit,
        elastic=elastic / unit,
        sizes=market.sizes,
    ), unit
