"""Some jobs placed at once by a linear program, whose multipliers are the prices."""

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.policies.fast.vertices import best
from gavel.types import FloatArray, IntArray

NOISE = 1e-10  # less of a job's time than this is rounding


def placed(asked: Asked) -> tuple[FloatArray, Prices] | None:
    """Return the best fractions (k, q), and the prices; None if what is to be kept cannot be."""
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
    fractions = np.zeros_like(asked.gain)
    fractions[rows, kinds] = np.clip(x, 0.0, 1.0)
    _, of_types, of_groups, _, of_caps = np.split(prices, np.cumsum([k, m, g, len(asking)]))
    caps = np.maximum(0.0, -of_caps).reshape(c, m)
    return fractions, Prices(np.maximum(0.0, -of_types), np.maximum(0.0, of_groups), caps)


def placed_beside(asked: Asked, fractions: FloatArray, unclear: IntArray) -> tuple[FloatArray, Prices] | None:
    """Return what `placed` does, where only the `unclear` jobs are placed, beside the `fractions` of the others."""
    answer = placed(asked.of(unclear, asked.left(fractions)))
    if answer is None:
        return None
    every = fractions.copy()
    every[unclear], prices = answer
    return every, prices


def clear(asked: Asked, prices: Prices | None, band: float) -> tuple[FloatArray, IntArray]:
    """Return the fractions (k, q) of jobs whose choice is clear at `prices`, and the rows of the others.

    It is clear if the best choice is ahead of the next by more than `band` times what the job could gain at most. None:
    nobody's is.
    """
    if prices is None:
        return np.zeros_like(asked.gain), np.arange(len(asked.scale))
    fractions, _, ahead = best(asked.worth(prices), asked.vertices)
    unclear = np.flatnonzero(ahead <= band * asked.gain.max(axis=1))
    fractions[unclear] = 0.0
    return fractions, unclear


def _constraints(asked: Asked, rows: IntArray, kinds: IntArray, asking: IntArray) -> simplex.ByColumn:
    """One for each column that a job can use; rows: time, workers, service of groups, of jobs, workers capped."""
    k, (c, m), g = len(asked.scale), asked.capped.shape, len(asked.together)
    own = np.full(k, -1)
    own[asking] = k + m + g + np.arange(len(asking))
    after = k + m + g + len(asking)
    group = asked.group[rows]
    types = asked.columns.type_index[kinds]
    capped = [np.where(asked.among[cap, rows], after + cap * m + types, -1) for cap in range(c)]
    places = np.column_stack([rows, k + types, np.where(group >= 0, k + m + group, -1), own[rows], *capped])
    service, workers = asked.service[rows, kinds], asked.scale[rows] * asked.columns.size[kinds]
    values = np.column_stack([np.ones(len(rows)), workers, service, service, *[workers] * c])
    used = places >= 0
    starts = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return simplex.ByColumn(after + c * m, starts, places[used], values[used])
