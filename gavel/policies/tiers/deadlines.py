"""Which deadlines of a user can be kept together with a part of the cluster."""

from heapq import heappop, heappush

import numpy as np

from gavel.types import BoolArray, FloatArray

PRECISION = 1e-7  # relative


def that_fit(work: FloatArray, left_s: FloatArray, workers: float) -> BoolArray:
    """Return which deadlines `workers` can keep together, (k,), as many as possible.

    `work` (k,) is what each job needs in worker seconds, `left_s` (k,) the time until its deadline. Moore (Management
    Science, 1968): in order of the deadlines; where one would be missed, the largest so far is given up.
    """
    order = np.argsort(left_s, kind="stable")
    kept = np.ones(len(work), dtype=bool)
    if (np.cumsum(work[order]) <= workers * left_s[order] * (1 + PRECISION)).all():
        return kept
    together, largest = 0.0, list[tuple[float, int]]()
    for job in order.tolist():
        heappush(largest, (-float(work[job]), -job))
        together += float(work[job])
        if together > workers * float(left_s[job]) * (1 + PRECISION):
            less, dropped = heappop(largest)
            together += less
            kept[-dropped] = False
    return kept
