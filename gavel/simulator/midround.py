"""Workers that are free in the middle of a round, and the waiting jobs that get them, as the service decides it."""

from collections.abc import Callable

import numpy as np

from gavel.mechanism.backfill import fill
from gavel.mechanism.nodes import usable
from gavel.mechanism.placement import Layout
from gavel.simulator.active import Active
from gavel.types import WorkerId


def placed_now(
    active: Active, layout: Layout, *, left_s: float, start_s: Callable[[str], float]
) -> dict[int, tuple[WorkerId, ...]]:
    """The workers of each row of `active` that waited and can start now, with `left_s` of the round to go.

    As in the service, a job waits for the next round if twice what a start of its kind costs (`start_s`) is more.
    """
    taken = {worker for workers in active.workers for worker in workers}
    is_worth = np.array([2 * start_s(job.spec.kind) <= left_s for job in active.jobs], dtype=bool)
    waiting = np.flatnonzero((active.column < 0) & is_worth)
    if not waiting.size or len(taken) == len(layout.cluster.workers):
        return {}
    free = Layout(usable(layout.cluster, {}, taken))
    columns = np.array([layout.types.index(name) for name in free.types])
    sizes = active.scale_factor[waiting]
    rates = np.where(sizes[:, None] <= free.capacity, active.rates[np.ix_(waiting, columns)], 0.0)
    found = fill(rates, sizes, active.ledger[np.ix_(waiting, columns)], free)
    return {int(waiting[row]): workers for row, workers in found.items()}
