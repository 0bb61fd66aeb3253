"""The gang that a move between two columns costs least, for each two columns, kept right while gangs move.

An exchange changes the columns of a few rows among many thousands: all rows are sorted once, and then only those that
have moved are looked at again.
"""

import heapq
import math
from collections.abc import Iterable

import numpy as np

from gavel.types import FloatArray, IntArray

NONE = (math.inf, -1)


class LeastMoves:
    """Of `rows`, which of those that are in a column loses least in another one.

    `worth` (r, k) of each row in each column, -inf: not there; `column` (r,) where each row is, which others change.
    """

    def __init__(self, worth: FloatArray, column: IntArray, rows: IntArray) -> None:
        self._worth, self._column, count = worth, column, worth.shape[1]
        there = [rows[column[rows] == start] for start in range(count)]
        self._queues = [[_Queue(*_sorted(worth, there[a], a, b)) for b in range(count)] for a in range(count)]

    def table(self) -> tuple[FloatArray, IntArray]:
        """Return the least cost of a move from a column to another, (k, k), and its row; +inf and -1: there is none."""
        least = [[each.first(self._column, start) for each in of] for start, of in enumerate(self._queues)]
        cost = np.array([[each[0] for each in of] for of in least])
        return cost, np.array([[each[1] for each in of] for of in least], dtype=np.int64)

    def take(self, moved: Iterable[int]) -> None:
        """Learn that these rows are in another column than before."""
        for row in moved:
            start = int(self._column[row])
            lost = self._worth[row, start] - self._worth[row]
            for finish, queue in enumerate(self._queues[start]):
                heapq.heappush(queue.newcomers, (float(lost[finish]), row))


class _Queue:
    """Rows that were in a column, the least cost first, and those that came to it since."""

    def __init__(self, costs: FloatArray, rows: IntArray) -> None:
        self._costs, self._rows, self._next = costs, rows, 0
        self.newcomers: list[tuple[float, int]] = []

    def first(self, column: IntArray, start: int) -> tuple[float, int]:
        """Return cost and row of the first one that is still in the column; among equals the lowest row."""
        while self._next < len(self._rows) and column[self._rows[self._next]] != start:
            self._next += 1
        while self.newcomers and column[self.newcomers[0][1]] != start:
            heapq.heappop(self.newcomers)
        has_old = self._next < len(self._rows)
        old = (float(self._costs[self._next]), int(self._rows[self._next])) if has_old else NONE
        return min(old, self.newcomers[0] if self.newcomers else NONE)


def _sorted(worth: FloatArray, rows: IntArray, start: int, finish: int) -> tuple[FloatArray, IntArray]:
    """The costs of a move of these rows, ascending, and the rows."""
    costs = worth[rows, start] - worth[rows, finish]
    order = np.argsort(costs, kind="stable")
    return costs[order], rows[order]
