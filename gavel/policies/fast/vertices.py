"""Jobs that have to be at least so fast, for a choice by prices: the vertices of what each of them may be given.

A job that asks for so much speed may have any x >= 0 with sum_j x_j <= 1 and speed . x >= least. Whatever the prices,
its best x is a vertex of that: one column all the time that is fast enough, or a faster and a slower one (or none) for
such parts of the time that it is just fast enough. So they are listed once, and priced as often as one likes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gavel.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Vertices:
    """The v vertices of the jobs `rows` (a,), job by job.

    `of` (v,) says of which of the rows a vertex is. It is column `first` (v,) for `part` (v,) of the time, and column
    `second` (v,) for the rest; the column after the last is none.
    """

    rows: IntArray
    of: IntArray
    first: IntArray
    second: IntArray
    part: FloatArray

    @classmethod
    def listed(cls, speed: FloatArray, usable: BoolArray, least: FloatArray) -> "Vertices":
        """Return those of the jobs that ask, by the `speed` (k, c) where `usable` (k, c) and the `least` (k,) asked.

        A job that asks for more than it reaches anywhere is taken to ask for the most that it reaches.
        """
        rows = np.flatnonzero(least > 0)
        reached = np.column_stack([np.where(usable[rows], speed[rows], 0.0), np.zeros(len(rows))])
        may = np.column_stack([usable[rows], np.ones(len(rows), dtype=bool)])
        asked = np.minimum(least[rows], reached.max(axis=1, initial=0.0))[:, None]
        of_one, alone = np.nonzero(may & (reached >= asked))
        above, below = may & (reached > asked), may & (reached < asked)
        of_two, faster, slower = np.nonzero(above[:, :, None] & below[:, None, :])
        rest = reached[of_two, slower]
        part = (asked[of_two, 0] - rest) / (reached[of_two, faster] - rest)
        of = np.concatenate([of_one, of_two])
        order = np.argsort(of, kind="stable")
        first, second = np.concatenate([alone, faster])[order], np.concatenate([alone, slower])[order]
        return cls(rows, of[order], first, second, np.concatenate([np.ones(len(alone)), part])[order])

    @cached_property
    def _starts(self) -> IntArray:
        return np.searchsorted(self.of, np.arange(len(self.rows)))

    def most(self, surplus: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what each job gains at best, (a,), what it would gain at second best, (a,), and its x, (a, c).

        `surplus` (a, c) is what each column is worth to them beyond its price. The second best is minus infinity where
        a job has one vertex only; of several that are best, x is the mean.
        """
        gains = np.column_stack([surplus, np.zeros(len(self.rows))])
        value = self.part * gains[self.of, self.first] + (1 - self.part) * gains[self.of, self.second]
        best = np.maximum.reduceat(value, self._starts)
        is_best = value == best[self.of]
        ties = np.bincount(self.of, is_best)
        others = np.maximum.reduceat(np.where(is_best, -np.inf, value), self._starts)
        taken = np.flatnonzero(is_best)
        rows, share, part = self.of[taken] * gains.shape[1], 1 / ties[self.of[taken]], self.part[taken]
        x: FloatArray = np.bincount(rows + self.first[taken], share * part, gains.size).astype(float)
        x += np.bincount(rows + self.second[taken], share * (1 - part), gains.size)
        return best, np.where(ties > 1, best, others), x.reshape(gains.shape)[:, :-1]


def best(surplus: FloatArray, vertices: Vertices) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what each of k jobs is best given, (k, c), what it gains by that, (k,), and how far that is ahead, (k,).

    `surplus` (k, c) is what each column is worth to a job beyond its price, minus infinity where it may not use it. A
    job that asks for nothing may get nothing, too.
    """
    x, chosen = np.zeros(surplus.shape), surplus.argmax(axis=1)
    ordered = np.sort(np.column_stack([surplus, np.zeros(len(surplus))]), axis=1)
    gain, ahead = ordered[:, -1], ordered[:, -1] - ordered[:, -2]
    taken = np.flatnonzero(gain > 0)
    x[taken, chosen[taken]] = 1.0
    if len(rows := vertices.rows):
        gain[rows], second, x[rows] = vertices.most(surplus[rows])
        ahead[rows] = gain[rows] - second
    return x, gain, ahead
