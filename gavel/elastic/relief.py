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
    for place in np.argsort(price[np.arange(len(rows)), best], kind="stable").tolist():
        if free[kind] >= 0:
            break
        _change(problem, configuration, free, int(rows[place]), int(best[place]))


def _change(problem: SizeProblem, configuration: IntArray, free: IntArray, row: int, column: int) -> None:
    """Give a job another configuration if there is room, or nothing where `column` is beyond the last."""
    own, is_nothing = int(configuration[row]), column == len(problem.type_of)
    type_of, workers = np.append(problem.type_of, 0), np.append(problem.workers, 0)
    if not is_nothing and type_of[column] != type_of[own] and free[type_of[column]] < workers[column]:
        return
    free[type_of[own]] += workers[own]
    free[type_of[column]] -= workers[column]
    configuration[row] = NOTHING if is_nothing else column
