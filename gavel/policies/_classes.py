"""Identical jobs as one class: solve for the classes, give each member the class's time fractions.

Exact for every objective that does not care which of two identical jobs is which: average an optimum over all
permutations of identical jobs; it stays valid (the set is convex) and no worse (the objective is concave), and identical
jobs now share alike. A class is one row with the time of one member and the workers of all. What makes jobs identical
depends on the objective: every number that it looks at has to be in the key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.types import AllocationProblem, FloatArray, IntArray

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


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
    """The classes of jobs with equal rows in all `keys`, each (n,) or (n, columns). O(n), but for one sort of integers."""
    words = np.hstack([_words(key) for key in keys])
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    order = np.argsort(mixed)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = mixed[order[1:]] != mixed[order[:-1]]
    of_job = np.empty(len(order), dtype=np.int64)
    of_job[order] = np.cumsum(begins) - 1
    first = order[begins]
    if not all(np.array_equal(column, column[first][of_job]) for column in words.T):  # two keys mixed alike: rare
        return _all_apart(len(order))
    return Classes(first, np.bincount(of_job, minlength=len(first)), of_job)


def reduce(problem: AllocationProblem, keys: Sequence[FloatArray | IntArray]) -> tuple[AllocationProblem, Classes]:
    """A problem with one job for each class, and the classes, which say how many each stands for and lead back.

    For problems whose combination r is job r alone. A class's job has the scale factor of one member: whoever states
    the program counts its workers `count` times.
    """
    found = classes(keys)
    rows = found.first.tolist()
    per_job = (
        "throughput_steps_per_s", "scale_factor", "weight", "steps_remaining", "age_s", "attained_service_s",
        "isolated_time_s", "deadline_at_s", "tier_of_job",
    )  # fmt: skip
    smaller = replace(
        problem,
        job_ids=tuple(problem.job_ids[row] for row in rows),
        combinations=tuple((row,) for row in range(len(rows))),
        users=tuple(problem.users[row] for row in rows),
        **{name: getattr(problem, name)[found.first] for name in per_job},
    )
    return smaller, found


def _words(key: FloatArray | IntArray) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    rows = key if key.ndim > 1 else key[:, None]
    if np.issubdtype(rows.dtype, np.floating):
        rows = rows + 0.0  # minus zero is zero
    return np.ascontiguousarray(rows).view(np.uint64)


def _all_apart(jobs: int) -> Classes:
    every = np.arange(jobs)
    return Classes(every, np.ones(jobs, dtype=np.int64), every)
