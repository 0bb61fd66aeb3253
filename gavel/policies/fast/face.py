"""The greatest total beside targets that are kept: which of the optima of max-min fairness is taken.

maximise sum_i g_i a_i such that, for each job i and accelerator type j,
    a_i = sum_j A_ij x_ij >= tau_i,   sum_j x_ij <= 1,   sum_i s_i x_ij <= N_j,   x >= 0.
At prices p of the types, job i goes on along its lower envelope (`envelope`) from tau_i as long as a little more value
costs less than g_i. What that leaves, sum_i (g_i a_i - c_i(a_i, p)) + p . N, bounds the total from above.

1. with many jobs, prices of a sample of them on its part of the workers, improved over all jobs by cutting planes;
2. a job whose way is clear at the last prices takes it; a linear program places the others in what is left, and its
   multipliers are the next prices;
3. the total and its bound at these prices are the certificate; if they are apart, ask again with fewer clear ways.
"""

from dataclasses import dataclass

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.linear.cuts import lowest
from gavel.policies.fast.envelope import Envelopes, Market
from gavel.types import FloatArray, IntArray

AT_ONCE = 300  # jobs; with more, prices come first
FIRST_BAND = 3e-4  # relative margin within which a way is unclear at prices that are nearly the best
MOST_ROUNDS = 12
EXACT = 1e-9  # relative distance to the bound
MOST_JOBS = 4_000  # different ones; with more it takes most of a second
MOST_UNCLEAR = 4_000  # jobs; with more the linear program takes seconds
SLACK = 1e-9  # relative; of the targets, or rounding would make them infeasible


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """The `value` (n,) of each job, `fractions` (q, n) that give it, the distance to the `bound`, and prices (m,)."""

    value: FloatArray
    fractions: FloatArray
    gap: float
    prices: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """`gain` (n,) that a unit of value of each job is worth, and the `least` value (n,) that it keeps."""

    market: Market
    gain: FloatArray
    least: FloatArray

    def of(self, jobs: IntArray, part: float, less: float) -> "_Asked":
        """These jobs with a part of the workers, and targets that are less, as a sample may not reach all."""
        return _Asked(self.market.of(jobs, part), self.gain[jobs], self.least[jobs] * (1 - less))

    def bound_and_slope(self, prices: FloatArray) -> tuple[float, FloatArray]:
        """The bound at `prices`, and how it changes with each of them, (m,): the workers that nobody holds."""
        priced = _Priced(self, prices)
        used = priced.vertex.used(self.market.scale, len(self.market.rates))
        return priced.bound, self.market.workers - self.market.of_types(used)


def greatest_beside(market: Market, gain: FloatArray, least: FloatArray) -> Total:
    """Return the greatest sum of `gain` (n,) times value, every job having the `least` (n,); raises SolveFailed."""
    whole = _Asked(market, gain / float((gain * market.best).max()), least * (1 - SLACK))
    if len(gain) <= AT_ONCE:
        return _settled(whole, None, np.inf)
    return _settled(whole, lowest(whole.bound_and_slope, _of_sample(whole)), FIRST_BAND)


def _of_sample(whole: _Asked) -> FloatArray:
    """Return the prices (m,) of a sample with its part of the workers; with lower targets where it misses its own."""
    market, jobs = whole.market, np.linspace(0, len(whole.gain) - 1, AT_ONCE).astype(np.int64)
    part = float(market.scale[jobs].sum() / market.scale.sum())
    for less in (0.0, 2 / np.sqrt(AT_ONCE), 1.0):
        asked = whole.of(jobs, part, less)
        placed = _placed(asked, np.arange(AT_ONCE), asked.market.workers)
        if placed is not None:
            return placed[1]
    raise SolveFailed("the greatest total beside targets has no prices of a sample")


class _Priced:
    """What each job of `asked` does at `prices`: its `value` (n,), its `vertex`, and the `bound` of them all."""

    def __init__(self, asked: _Asked, prices: FloatArray) -> None:
        market, gain = asked.market, asked.gain
        envelopes = Envelopes(market, prices, market.best)
        value, clear = asked.least.copy(), np.ones(len(gain))
        for step in envelopes.steps:
            worth = gain[step.jobs]
            further = np.where(step.slope < worth, np.maximum(value[step.jobs], step.reach), value[step.jobs])
            value[step.jobs] = further
            apart = np.abs(step.slope - worth) / (step.slope + worth)
            clear[step.jobs] = np.minimum(clear[step.jobs], apart)
        self.prices, self.value = prices, value
        self.vertex = envelopes.vertex(value)
        self._envelopes, self._clear = envelopes, clear
        self.bound = float(gain @ value) - envelopes.cost(value)[0] + float(prices @ market.workers)

    @property
    def margin(self) -> FloatArray:
        """How far, relatively, the prices may move before each job's way changes, (n,)."""
        way = np.where(self.value > 0, self._envelopes.margin(self.vertex), 1.0)
        margin: FloatArray = np.minimum(self._clear, way)
        return margin


def _settled(asked: _Asked, prices: FloatArray | None, band: float) -> Total:
    """Return the answer of steps 2 and 3; raises SolveFailed if they do not settle."""
    market = asked.market
    priced = None if prices is None else _Priced(asked, prices)
    for _ in range(MOST_ROUNDS):
        fractions = np.zeros(market.rates.shape)
        unclear = np.arange(len(asked.gain))
        if priced is not None:
            fractions = priced.vertex.of_types(len(market.rates))
            unclear = np.flatnonzero(priced.margin <= band)
            fractions[:, unclear] = 0.0
        if len(unclear) > MOST_UNCLEAR:
            break
        placed = _placed(asked, unclear, market.workers - market.of_types(fractions @ market.scale))
        if placed is not None:
            fractions[:, unclear] = placed[0]
            priced = _Priced(asked, placed[1])
            value = (market.rates * fractions).sum(axis=0)
            gap = (priced.bound - float(asked.gain @ value)) / max(priced.bound, 1e-300)
            if gap <= EXACT:
                return Total(value, fractions, max(0.0, gap), priced.prices)
        if len(unclear) == len(asked.gain):
            break
        band = 3 * band
    raise SolveFailed("the greatest total beside targets did not settle")


def _placed(asked: _Asked, jobs: IntArray, left: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the best fractions (q, jobs) of `jobs` in the workers `left` (m,), and prices (m,); None if none fit."""
    market = asked.market
    rates, scale, paid = market.rates[:, jobs], market.scale[jobs], market.column_prices(np.ones(len(left)))
    rows, kinds = np.nonzero(rates.T)
    k, size = len(jobs), len(rows)
    if (left < -1e-9 * market.workers).any():
        return None
    if not size:
        return np.zeros(rates.shape), np.zeros(len(left))
    entries = rates[kinds, rows]
    values = np.column_stack([entries, np.ones(size), scale[rows] * paid[kinds]]).ravel()
    places = np.column_stack([rows, k + rows, 2 * k + market.type_of_columns[kinds]]).ravel()
    matrix = simplex.ByColumn(2 * k + len(left), np.arange(0, 3 * size + 1, 3), places, values)
    lower = np.concatenate([asked.least[jobs], np.full(k + len(left), -np.inf)])
    upper = np.concatenate([np.full(k, np.inf), np.ones(k), np.maximum(0.0, left)])
    try:
        x, prices = simplex.least(matrix, -asked.gain[jobs][rows] * entries, np.zeros(size), (lower, upper))
    except SolveFailed:
        return None
    fractions = np.zeros(rates.shape)
    fractions[kinds, rows] = np.clip(x, 0.0, 1.0)
    return fractions, np.maximum(0.0, -prices[2 * k :])
