"""Some jobs placed at once by a linear program, whose multipliers are the prices."""

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies.fast import simplex
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.types import FloatArray, IntArray

NOISE = 1e-10  # less of a job's time than this is rounding


def placed(asked: Asked) -> tuple[FloatArray, Prices, FloatArray] | None:
    """Return the best fractions (k, m), the prices, and that of each job's own least; None if they cannot be kept."""
    rows, kinds = np.nonzero(asked.service)
    k, (c, m), g = len(asked.scale), asked.capped.shape, len(asked.together)
    asking = np.flatnonzero(asked.least)
    matrix = _constraints(asked, rows, kinds, asking)
    free = np.full(k + m, -np.inf)
    least = np.concatenate([asked.together, asked.least[asking]])
    lower = np.concatenate([free, least, np.full(c * m, -np.inf)])
    upper = np.concatenate([np.ones(k), asked.workers, np.full(len(least), np.inf), asked.capped.ravel()])
    if (asked.workers < -NOISE).any() or (asked.capped < -NOISE).any():
        return None
    try:
        # Nobody placed is nearly right for most jobs: from there the primal method is three to five times as fast.
        bounds = (lower, np.maximum(0.0, upper))
        x, prices = simplex.least(matrix, -asked.gain[rows, kinds], np.zeros(len(rows)), bounds, method=simplex.PRIMAL)
    except SolveFailed:
        return None
    fractions, demand = np.zeros_like(asked.gain), np.zeros(k)
    fractions[rows, kinds] = np.clip(x, 0.0, 1.0)
    _, of_types, of_groups, of_jobs, of_caps = np.split(prices, np.cumsum([k, m, g, len(asking)]))
    demand[asking] = np.maximum(0.0, of_jobs)
    caps = np.maximum(0.0, -of_caps).reshape(c, m)
    return fractions, Prices(np.maximum(0.0, -of_types), np.maximum(0.0, of_groups), caps), demand


def placed_beside(
    asked: Asked, fractions: FloatArray, unclear: IntArray
) -> tuple[FloatArray, Prices, FloatArray] | None:
    """Return what `placed` does, where only the `unclear` jobs are placed, beside the `fractions` of the others."""
    answer = placed(asked.of(unclear, asked.left(fractions)))
    if answer is None:
        return None
    every, demand = fractions.copy(), np.zeros(len(asked.scale))
    every[unclear], prices, demand[unclear] = answer
    return every, prices, demand


def clear(asked: Asked, prices: Prices | None, band: float) -> tuple[FloatArray, IntArray]:
    """Return the fractions (k, m) of jobs whose choice is clear at `prices`, and the rows of the others.

    It is clear if the best choice is ahead of the next by more than `band` times what the job could gain at most. None:
    nobody's is.
    """
    fractions = np.zeros_like(asked.gain)
    if prices is None:
        return fractions, np.arange(len(asked.scale))
    worth = asked.worth(prices)
    chosen, every = worth.argmax(axis=1), np.arange(len(worth))
    ordered = np.sort(np.column_stack([worth, np.zeros(len(worth))]), axis=1)
    is_clear = ordered[:, -1] - ordered[:, -2] > band * asked.gain.max(axis=1)
    runs = worth.max(axis=1) > 0
    is_clear &= np.where(runs, asked.service[every, chosen], 0.0) >= asked.least
    taken = np.flatnonzero(is_clear & runs)
    fractions[taken, chosen[taken]] = 1.0
    return fractions, np.flatnonzero(~is_clear)


def _constraints(asked: Asked, rows: IntArray, kinds: IntArray, asking: IntArray) -> simplex.ByColumn:
    """One column for each type that a job can use; rows: time, workers, service of groups, of jobs, workers capped."""
    k, (c, m), g = len(asked.scale), asked.capped.shape, len(asked.together)
    own = np.full(k, -1)
    own[asking] = k + m + g + np.arange(len(asking))
    after = k + m + g + len(asking)
    group = asked.group[rows]
    capped = [np.where(asked.among[cap, rows], after + cap * m + kinds, -1) for cap in range(c)]
    places = np.column_stack([rows, k + kinds, np.where(group >= 0, k + m + group, -1), own[rows], *capped])
    service, scale = asked.service[rows, kinds], asked.scale[rows]
    values = np.column_stack([np.ones(len(rows)), scale, service, service, *[scale] * c])
    used = places >= 0
    starts = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return simplex.ByColumn(after + c * m, starts, places[used], values[used])
