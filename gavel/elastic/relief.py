"""Takes what jobs want beyond the workers of a type away again, from those that lose least by it.

At prices that are nearly right many jobs have another configuration that is worth nearly as much to them.
"""

import numpy as np

from gavel.elastic.prices import Demand
from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.types import FloatArray, IntArray

PASSES = 3  # over the types: what leaves one may come to another


def relieved(problem: SizeProblem, wanted: Demand) -> IntArray:
    """Return the configurations wanted, (n,), changed where their type is overcrowded; some crowd may be left."""
    cost = wanted.prices[problem.type_of] * problem.workers
    profit = np.where(problem.flat > 0, problem.flat - cost, -np.inf)
    configuration = wanted.configuration.copy()
    for _ in range(PASSES):
        free = problem.capacity_workers - problem.held(configuration)
        if (free >= 0).all():
            break
        for kind in np.argsort(free).tolist():
            if free[kind] < 0:
                _relieve(problem, configuration, profit, free, kind)
    return configuration


def _relieve(problem: SizeProblem, configuration: IntArray, profit: FloatArray, free: IntArray, kind: int) -> None:
    """Change jobs of a type until it is not overcrowded, the one that loses least for each worker freed first."""
    here = (configuration >= 0) & (problem.type_of[configuration] == kind)
    rows = np.flatnonzero(here)
    own = configuration[rows]
    stays = np.where(problem.type_of == kind, problem.workers, 0)
    freed = problem.workers[own][:, None] - np.append(stays, 0)
    room = np.append((problem.type_of == kind) | (problem.workers <= free[problem.type_of]), True)
    loss = profit[rows, own][:, None] - np.column_stack([profit[rows], np.zeros(len(rows))])
    price = np.where((freed > 0) & room, loss / np.maximum(freed, 1), np.inf)
    best = price.argmin(axis=1)
    least = price[np.arange(len(rows)), best]
    type_of, workers = np.append(problem.type_of, 0).tolist(), np.append(problem.workers, 0).tolist()
    for place in np.argsort(least, kind="stable").tolist():
        if free[kind] >= 0 or least[place] == np.inf:
            break
        held, column = int(own[place]), int(best[place])
        is_nothing = column == len(type_of) - 1
        if not is_nothing and type_of[column] != kind and free[type_of[column]] < workers[column]:
            continue
        free[kind] += workers[held]
        free[type_of[column]] -= workers[column]
        configuration[rows[place]] = NOTHING if is_nothing else column
