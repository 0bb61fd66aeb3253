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

from gavel.policies.fast.blocks import blocks
from gavel.types import FloatArray, IntArray

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
PEEK = 2_000
MANY = 4 * PEEK
SLOT_BITS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """k classes of n jobs: a member of each (`first` (k,)), how many there are (`count` (k,)), and `of_job` (n,)."""

    first: IntArray
    count: IntArray
    of_job: IntArray

    def expand(self, of_class: FloatArray) -> FloatArray:
        """Return the rows of `of_class` (k, ...) for the jobs, (n, ...)."""
        of_job: FloatArray = of_class.take(self.of_job, axis=0)
        return of_job

    def in_turn(self, of_class: FloatArray, worth: FloatArray, first: FloatArray | None = None) -> FloatArray:
        """Return the time of each class dealt out to its jobs one after the other, (n, m); their total is the same.

        `of_class` (k, m) is the time of one member if all share alike; `worth` (k, m): the first has the types that are
        worth most. The jobs go in their order, or those with the largest number in `first` (n,) go first. So at most
        one job of a class has a part of its time on several types, or of the time at all.
        """
        order = np.argsort(self.of_job, kind="stable") if first is None else np.lexsort((-first, self.of_job))
        begins = np.repeat(np.cumsum(self.count) - self.count, self.count)
        place = np.empty(len(order))
        place[order] = np.arange(len(order)) - begins
        best_first = np.argsort(-worth, axis=1, kind="stable")
        whole = np.take_along_axis(of_class * self.count[:, None], best_first, axis=1)
        until = np.cumsum(whole, axis=1)
        begin, end = self.expand(until - whole), self.expand(until)
        own = np.minimum(place[:, None] + 1, end) - np.maximum(place[:, None], begin)
        dealt = np.zeros_like(own)
        np.put_along_axis(dealt, best_first.take(self.of_job, axis=0), np.clip(own, 0.0, 1.0), axis=1)
        return dealt

    def fit(self, columns: Sequence[FloatArray | IntArray]) -> bool:
        """Return whether all jobs of a class have equal numbers in each of the `columns` (n,)."""
        return all(np.array_equal(column[self.first].take(self.of_job), column) for column in columns)


def classes(keys: Sequence[FloatArray | IntArray]) -> Classes:
    """Return the classes of jobs with equal rows in all `keys`, each (n,) or (n, columns); O(n) if classes are few.

    Every job's numbers are mixed into one. Jobs are looked up by its leading bits, or sorted by it where they are few
    or two classes have those bits in common.
    """
    jobs = len(keys[0])
    if jobs > MANY and len(_peeked(keys).first) > 0.9 * PEEK:
        return _all_apart(jobs)  # hardly any are alike: joining the few is not worth the sort
    columns = [column for key in keys for column in (key.T if key.ndim > 1 else [key])]
    mixed = _mixed(columns)
    for grouping in (_by_slot, _by_order) if jobs > MANY else (_by_order,):
        joined = grouping(mixed)
        if len(joined.first) == jobs or joined.fit(columns):
            return joined
    return _all_apart(jobs)  # two keys mixed alike: rare


def _peeked(keys: Sequence[FloatArray | IntArray]) -> Classes:
    some = np.linspace(0, len(keys[0]) - 1, PEEK).astype(np.int64)
    return classes([key[some] for key in keys])


def _mixed(columns: Sequence[FloatArray | IntArray]) -> "npt.NDArray[np.uint64]":
    """One number for each job, (n,), the same for equal numbers in all columns."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for some in blocks(len(mixed)):
        block = mixed[some]
        for column in columns:
            block ^= (column[some] + column.dtype.type(0)).view(np.uint64)  # minus zero becomes zero
            block *= _MULTIPLIER
            block ^= block >> _SHIFT
    return mixed


def _by_slot(mixed: "npt.NDArray[np.uint64]") -> Classes:
    slot = (mixed >> np.uint64(64 - SLOT_BITS)).astype(np.int64)
    every, last = np.arange(len(slot)), np.empty(1 << SLOT_BITS, dtype=np.int64)
    last[slot] = every
    first = np.flatnonzero(last.take(slot) == every)
    last[slot[first]] = np.arange(len(first))
    of_job = last.take(slot)
    return Classes(first, np.bincount(of_job, minlength=len(first)), of_job)


def _by_order(mixed: "npt.NDArray[np.uint64]") -> Classes:
    order = np.argsort(mixed)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = mixed[order[1:]] != mixed[order[:-1]]
    of_job = np.empty(len(order), dtype=np.int64)
    of_job[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Classes(first, np.bincount(of_job, minlength=len(first)), of_job)


def _all_apart(jobs: int) -> Classes:
    every = np.arange(jobs)
    return Classes(every, np.ones(jobs, dtype=np.int64), every)
