"""Makes whole gangs that fit of what jobs want at prices: what is worth most for its price first, then upgrades."""

import numpy as np

from gavel.elastic.prices import Demand
from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.elastic.relief import relieved
from gavel.types import FloatArray, IntArray

PASSES_MAX = 12
GOOD_ENOUGH = 1 - 5e-5  # of the bound: what is left to gain is not worth the search
TINY = 1e-9  # of a utility: no gain


def repaired(problem: SizeProblem, wanted: Demand) -> IntArray:
    """Return a configuration for each job, (n,), within capacity: those wanted, less the crowd, then upgrades."""
    prices = np.maximum(wanted.prices, TINY)
    cost: FloatArray = prices[problem.type_of] * problem.workers
    configuration, free = _placed(problem, relieved(problem, wanted), cost)
    if problem.value(configuration) >= wanted.bound * GOOD_ENOUGH:
        return configuration
    for _ in range(PASSES_MAX):
        if not any(free) or not _upgrade(problem, configuration, free, cost):
            break
    return configuration


def _placed(problem: SizeProblem, wanted: IntArray, cost: FloatArray) -> tuple[IntArray, list[int]]:
    """The wanted configurations that fit, by utility a price, and the workers of each type that are left."""
    rows = np.flatnonzero(wanted >= 0)
    columns = wanted[rows]
    order = np.argsort(-problem.flat[rows, columns] / cost[columns], kind="stable")
    free: list[int] = problem.capacity_workers.tolist()
    types, workers = problem.type_of[columns].tolist(), problem.workers[columns].tolist()
    configuration = np.full(len(wanted), NOTHING, dtype=np.int64)
    for place in order.tolist():
        if workers[place] <= free[types[place]]:
            free[types[place]] -= workers[place]
            configuration[rows[place]] = columns[place]
    return configuration, free


def _upgrade(problem: SizeProblem, configuration: IntArray, free: list[int], cost: FloatArray) -> bool:
    """Change jobs to what gains most for the price of the workers that it takes more, each once; False if none.

    Only configurations of types with workers that are left: on others nothing gains, or a job would have it already.
    """
    left, open_types = np.array(free), [kind for kind, workers in enumerate(free) if workers > 0]
    columns = np.flatnonzero(left[problem.type_of] > 0)
    has = configuration >= 0
    held = np.where(has, configuration, 0)
    own_workers, own_type = np.where(has, problem.workers[held], 0), problem.type_of[held]
    own_value = np.where(has, problem.flat[np.arange(len(held)), held], 0.0)
    types, workers = problem.type_of[columns], problem.workers[columns]
    room = left[types] + np.where(types == own_type[:, None], own_workers[:, None], 0)
    gain = np.where(workers <= room, problem.flat[:, columns] - own_value[:, None], 0.0)
    dearer = np.maximum(cost[columns] - np.where(has, cost[held], 0.0)[:, None], TINY)
    score = np.where(gain > TINY, gain / dearer, 0.0)
    best = score.argmax(axis=1)
    worth = score[np.arange(len(held)), best]
    changed = False
    for row in np.argsort(-worth, kind="stable")[: int((worth > 0).sum())].tolist():
        if not any(free[kind] for kind in open_types):
            break
        changed = _take(problem, configuration, free, row, int(columns[best[row]])) or changed
    return changed


def _take(problem: SizeProblem, configuration: IntArray, free: list[int], row: int, column: int) -> bool:
    """Give the job the configuration instead of its own if there is room."""
    before, size = int(configuration[row]), len(problem.sizes)
    kind, workers = column // size, int(problem.sizes[column % size])
    own, own_workers = (before // size, int(problem.sizes[before % size])) if before >= 0 else (kind, 0)
    if workers > free[kind] + (own_workers if own == kind else 0):
        return False
    free[own] += own_workers
    free[kind] -= workers
    configuration[row] = column
    return True
