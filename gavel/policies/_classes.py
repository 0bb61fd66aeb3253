"""Identical jobs as one class: solve for the classes, give each member the class's time fractions.

Exact for every objective that does not care which of two identical jobs is which: average an optimum over all
permutations of identical jobs; it stays valid (the set is convex) and no worse (the objective is concave), and
identical jobs now share alike. A class is one row with the time of one member and the workers of all. What makes jobs
identical depends on the objective: every number that it looks at has to be in the key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gavel.types import FloatArray, IntArray

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
PEEK = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """k classes of n jobs: a member of each (`first` (k,)), how many there are (`count` (k,)), and `of_job` (n,)."""

    first: IntArray
    count: IntArray
    of_job: IntArray

    def expand(self, of_class: FloatArray) -> FloatArray:
        """The rows of `of_class` (k, ...) given back to the jobs, (n, ...)."""
        of_job: FloatArray = of_class[self.of_job]
        return of_job


def classes(keys: Sequence[FloatArray | IntArray]) -> Classes:
    """The classes of jobs with equal rows in all `keys`, each (n,) or (n, columns); O(n) but for a sort of integers."""
    if len(keys[0]) > 4 * PEEK and len(_peeked(keys).first) > 0.9 * PEEK:
        return _all_apart(len(keys[0]))  # hardly any are alike: joining the few is not worth the sort
    columns = [words for key in keys for words in _words(key)]
    mixed = np.zeros(len(keys[0]), dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    order = np.argsort(mixed)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = mixed[order[1:]] != mixed[order[:-1]]
    of_job = np.empty(len(order), dtype=np.int64)
    of_job[order] = np.cumsum(begins) - 1
    first = order[begins]
    if not all(np.array_equal(column, column[first][of_job]) for column in columns):  # two keys mixed alike: rare
        return _all_apart(len(order))
    return Classes(first, np.bincount(of_job, minlength=len(first)), of_job)


def _peeked(keys: Sequence[FloatArray | IntArray]) -> Classes:
    some = np.linspace(0, len(keys[0]) - 1, PEEK).astype(np.int64)
    return classes([key[some] for key in keys])


def _words(key: FloatArray | IntArray) -> "list[npt.NDArray[np.uint64]]":
    """The columns of a key as whole numbers that are equal exactly if their numbers are."""
    columns = key.T if key.ndim > 1 else [key]
    return [(column + column.dtype.type(0)).view(np.uint64) for column in columns]  # minus zero becomes zero


def _all_apart(jobs: int) -> Classes:
    every = np.arange(jobs)
    return Classes(every, np.ones(jobs, dtype=np.int64), every)
