"""The combinations of an allocation by name, for as many jobs as there are."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np

from gavel.policies import measures
from gavel.types import AllocationProblem, IntArray, JobId

Names = tuple[tuple[JobId, ...], ...]


def of_combinations(problem: AllocationProblem) -> Names:
    """The combinations of `problem` with job ids in place of indices."""
    if measures.is_unpacked(problem):
        return of_jobs_and_pairs(problem.job_ids, np.zeros(0, np.int64), np.zeros(0, np.int64))
    return tuple(tuple(problem.job_ids[job] for job in members) for members in problem.combinations)


def of_jobs_and_pairs(job_ids: Sequence[JobId], first: IntArray, second: IntArray) -> Names:
    """Each job alone, in order, and after them the pairs of the jobs `first` and `second` (p,)."""
    with _collector_at_rest():
        if not len(first):
            return tuple(zip(job_ids, strict=True))
        ids = np.asarray(job_ids, dtype=object)
        pairs = zip(ids[first].tolist(), ids[second].tolist(), strict=True)
        return tuple(chain(zip(job_ids, strict=True), pairs))


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """While millions of tuples are made at once: looking for cycles, of which they have none, takes as long again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # and unfrozen at once: all that is new counts as looked at
        gc.unfreeze()
        if was_enabled:
            gc.enable()
