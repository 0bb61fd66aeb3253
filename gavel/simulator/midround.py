"""Which waiting jobs get the workers that are free in the middle of a round, as the service decides it."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.backfill import FreeWorkers, Held, fill
from gavel.simulator.active import Active
from gavel.types import NO_NEEDS, BoolArray, FloatArray, IntArray, WorkerId


def placed_now(
    active: Active,
    layout: Layout,
    lag: FloatArray,
    may_start: BoolArray,
    targets: Callable[[IntArray, Layout], FloatArray],
    away: Collection[WorkerId] = frozenset(),
) -> dict[int, tuple[WorkerId, ...]]:
    """Return the workers of each waiting row of `active` whose gang starts in the middle of a round.

    `lag` (n, m): rounds; `may_start` (n,): enough of the round is left to pay for a start, and no cap forbids it.
    `targets`: the fractions (k, p) that the policy gives k rows of the p types of a layout, asked where some of them
    cannot be preempted. Workers that are `away` get nobody.
    """
    waiting = np.flatnonzero((active.column < 0) & may_start)
    if not waiting.size or not _may_fit(active, layout, int(active.scale_factor[waiting].min())):
        return {}
    taken = {worker for workers in active.workers for worker in workers} | set(away)
    if len(taken) == len(layout.cluster.workers):
        return {}

    def cells_of(rows: Sequence[int], free: Layout) -> tuple[FloatArray, FloatArray]:
        cells = np.ix_(waiting[rows], np.array([layout.types.index(name) for name in free.types]))
        fits = free.feasibility.mask_of([needs[row] for row in rows], [sizes[row] for row in rows])
        return np.where(fits, active.rates[cells], 0.0), lag[cells]

    sizes = active.scale_factor[waiting].tolist()
    needs = [active.all_needs[row] for row in waiting.tolist()]
    workers = FreeWorkers(cluster=layout.cluster, taken=frozenset(taken), held=_held(active))
    behind = (lag[waiting].max(axis=1) > 0).astype(float)
    if (active.preemptible[waiting] == 0).any():
        free = workers.layout
        lag = lag.copy()
        columns = np.array([layout.types.index(name) for name in free.types], dtype=np.int64)
        lag[np.ix_(waiting, columns)] += targets(waiting, free)
        behind = np.maximum(0.0, lag[waiting].max(axis=1))
    placed = fill(sizes, behind.tolist(), cells_of, workers=workers, needs=needs)
    return {int(waiting[row]): workers for row, workers in placed.items()}


def _may_fit(active: Active, layout: Layout, size: int) -> bool:
    """Return False if a gang of `size` workers surely finds too few of each type free."""
    return active.is_sharing or int((layout.capacity - active.held_workers()).max(initial=0)) >= size


def _held(active: Active) -> tuple[Held, ...]:
    """What the running gangs hold; () while no job needs more than workers."""
    if not active.needs:
        return ()
    return (*((ids, active.all_needs[row]) for row, ids in enumerate(active.workers) if ids), ((), NO_NEEDS))
