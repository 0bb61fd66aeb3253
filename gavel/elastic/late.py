"""Workers for jobs that are far behind their isolated share, before all others bid for what is left.

n jobs, m types, k sizes; a configuration is numbered as in `problem`.
"""

import numpy as np

from gavel.elastic.problem import NOTHING
from gavel.types import FloatArray, IntArray

SLACK = 1e-9  # relative: a speed that is less by so little is enough


def first_served(
    speed: FloatArray, sizes: IntArray, free: IntArray, *, least: FloatArray, order: IntArray, wanted: IntArray
) -> IntArray:
    """Return a configuration for each job in `order` for which there is room, (n,); NOTHING for all others.

    `speed` (n, m, k), `sizes` (k,), `free` (m,) workers. Each is one in which the job makes at least `least` (n,) steps
    per second: the one `wanted` (n,) if that does, else the one that takes the smallest part of a type's workers, the
    fastest of equal ones.
    """
    types, flat = np.repeat(np.arange(len(free)), len(sizes)), speed.reshape(len(speed), -1)
    workers, left = np.tile(sizes, len(free)), free.copy()
    part = workers / np.maximum(1, free)[types]
    configuration = np.full(len(speed), NOTHING, dtype=np.int64)
    for row in order.tolist():
        fits = (flat[row] > 0) & (flat[row] >= least[row] * (1 - SLACK)) & (workers <= left[types])
        if not fits.any():
            continue
        own = int(wanted[row])
        best = own if own != NOTHING and fits[own] else int(np.lexsort((-flat[row], np.where(fits, part, np.inf)))[0])
        configuration[row] = best
        left[types[best]] -= workers[best]
    return configuration
