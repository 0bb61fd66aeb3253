"""Prices of the accelerator types at which jobs want about as many workers as there are.

Only the workers of a type couple the jobs, so there is one price a type, lambda. The dual

    D(lambda) = sum_g N_g lambda_g + sum_j max(0, max_c (U_jc - lambda_g(c) n_c))

bounds every choice from above, fractional ones included. It is convex in the prices: a few steps in which the price of
a type rises with its crowd come near the least bound, and cutting planes find it. At the best prices a whole choice is
hardly worth less than the bound, since no more jobs than types are divided between configurations.
"""

from dataclasses import dataclass

import numpy as np

from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.linear.cuts import lowest
from gavel.types import FloatArray, IntArray

STEPS = 12
FEW = 200_000  # jobs times configurations, which are looked at all at once: it is the calls that take the time
BOXES, EDGE = 3, 1e-3  # of prices: so near to the edge of where they were looked for they may be better beyond it
PRECISE = 1e-7  # relative, of the bound
LEAST_PRICE = 1e-9  # so that it can change
FIRST_STEP, STEP_FALL = 0.7, 0.9  # of the logarithm of a price at twice the workers wanted; each is so much smaller


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What jobs want at these prices (m,), the workers of each type (m,) that this takes, and the bound it proves."""

    prices: FloatArray
    configuration: IntArray  # (n,)
    workers: IntArray
    bound: float


def demand(problem: SizeProblem, prices: FloatArray) -> Demand:
    """Return what each job takes at the prices: the configuration of the largest gain, NOTHING if none gains."""
    flat, cost = problem.flat, prices[problem.type_of] * problem.workers
    gain = flat - cost
    best = gain.argmax(axis=1)
    most = gain[np.arange(len(best)), best]
    wanted = np.where(most > 0, best, NOTHING)
    bound = float(prices @ problem.capacity_workers + most[most > 0].sum())
    return Demand(prices=prices, configuration=wanted, workers=problem.held(wanted), bound=bound)


def balanced(problem: SizeProblem) -> list[Demand]:
    """Return the demands at the best prices found, the least bound first."""
    capacity = problem.capacity_workers
    if not capacity.any():
        return [demand(problem, np.zeros(len(capacity)))]
    dual = _Dual(problem)
    best = demand(problem, _lowest(dual, _near(dual, _mean_worth(problem))))
    spare = best.workers < capacity
    without_spare = demand(problem, np.where(spare, 0.0, best.prices))
    return sorted((best, without_spare), key=lambda each: each.bound)


def _near(dual: "_Dual", start: float) -> FloatArray:
    """Prices (m,) near the best: each type's price rises with its crowd, by steps that fall."""
    capacity, step = dual.capacity, FIRST_STEP
    prices, least, best = np.full(len(capacity), start), np.inf, np.zeros(len(capacity))
    for _ in range(STEPS):
        bound, left = dual.at(prices)
        if bound < least:
            least, best = bound, prices
        crowd = np.clip(-left / np.maximum(capacity, 1), -1, 1)
        prices = prices * np.exp(step * crowd)
        step *= STEP_FALL
    return best


def _lowest(dual: "_Dual", prices: FloatArray) -> FloatArray:
    """The prices (m,) of the least bound; cutting planes look between a half and twice of where they begin."""
    for _ in range(BOXES):
        before, prices = prices, lowest(dual.at, prices + LEAST_PRICE, precise=PRECISE)
        at_edge = (prices > (2 - EDGE) * before) | (prices < (0.5 + EDGE) * before)
        if not (at_edge & (prices > LEAST_PRICE)).any():
            break
    return prices


class _Dual:
    """The bound by prices, column by column: only configurations that some job can have, each in one row of memory."""

    def __init__(self, problem: SizeProblem) -> None:
        columns = np.flatnonzero(problem.flat.any(axis=0))
        self._worth = np.ascontiguousarray(problem.flat[:, columns].T)
        self._type_of, self._workers = problem.type_of[columns], problem.workers[columns]
        self.capacity = problem.capacity_workers.astype(np.float64)

    def at(self, prices: FloatArray) -> tuple[float, FloatArray]:
        """Return the bound at `prices` (m,), and how it changes with each of them, (m,): the workers nobody wants."""
        cost = prices[self._type_of] * self._workers
        if 0 < self._worth.size <= FEW:
            gain = self._worth - cost[:, None]
            most = gain.max(axis=0)
            best = np.where(most > 0, gain.argmax(axis=0), len(cost))
            return self._counted(prices, best, np.maximum(most, 0.0))
        most, best = np.zeros(self._worth.shape[1]), np.full(self._worth.shape[1], len(cost))
        for column, worth in enumerate(self._worth):
            gain = worth - cost[column]
            best[gain > most] = column
            np.maximum(most, gain, out=most)
        return self._counted(prices, best, most)

    def _counted(self, prices: FloatArray, best: IntArray, most: FloatArray) -> tuple[float, FloatArray]:
        """The bound and its slope where each job takes `best` (n,), at a gain of `most` (n,)."""
        times = np.bincount(best, minlength=len(self._workers) + 1)[:-1]
        held = np.bincount(self._type_of, weights=times * self._workers, minlength=len(prices))
        return float(prices @ self.capacity + most.sum()), self.capacity - held


def _mean_worth(problem: SizeProblem) -> float:
    """Where prices begin: the jobs' best utilities spread over all workers; positive, so that it can change."""
    total = float(problem.flat.max(axis=1, initial=0.0).sum())
    return max(total, 1e-12) / float(problem.capacity_workers.sum())
