"""Workers that are free in the middle of a round, and the waiting jobs that get them, as the service decides it."""

from collections.abc import Sequence

import numpy as np

from gavel.mechanism.backfill import fill
from gavel.mechanism.placement import Layout
from gavel.simulator.active import Active
from gavel.types import BoolArray, FloatArray, WorkerId


def placed_now(
    active: Active, layout: Layout, owed: FloatArray, may_start: BoolArray
) -> dict[int, tuple[WorkerId, ...]]:
    """The workers of each row of `active` that waited and gets a gang now.

    `owed` (n, m): rounds; `may_start` (n,): what is left of the round is worth it, and no cap stands against it.
    """
    taken = {worker for workers in active.workers for worker in workers}
    waiting = np.flatnonzero((active.column < 0) & may_start)
    if not waiting.size or len(taken) == len(layout.cluster.workers):
        return {}

    def known(rows: Sequence[int], free: Layout) -> tuple[FloatArray, FloatArray]:
        cells = np.ix_(waiting[rows], np.array([layout.types.index(name) for name in free.types]))
        fits = active.scale_factor[cells[0]] <= free.capacity
        return np.where(fits, active.rates[cells], 0.0), owed[cells]

    sizes = active.scale_factor[waiting].tolist()
    is_owed = (owed[waiting].max(axis=1) > 0).tolist()
    found = fill(sizes, is_owed, layout.cluster, taken, known)
    return {int(waiting[row]): workers for row, workers in found.items()}
