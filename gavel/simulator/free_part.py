"""What a round of the lean simulation shares: all but the gangs that no plan moves, and the workers that these hold."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.mechanism.cluster.nodes import usable
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.non_preemptible import used_of_kept
from gavel.mechanism.planning.problem import ClusterColumns, JobColumns
from gavel.simulator.active import Active, Rows
from gavel.types import AcceleratorType, FloatArray, IntArray, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreePart:
    """The `rows` of the active jobs that a round plans, on the workers of `layout`, of p types.

    `kept`: the workers of each row whose gang stays. `columns`: where the p types are among the m of the whole cluster.
    """

    rows: Rows
    kept: dict[int, tuple[WorkerId, ...]]
    layout: Layout
    cluster: ClusterColumns
    columns: IntArray

    def cells(self, of_all: FloatArray) -> FloatArray:
        """Return the cells (k, p) of the rows and types of this part, of an array (n, m) over all."""
        return of_all if isinstance(self.rows, slice) else of_all[np.ix_(self.rows, self.columns)]

    def steps_per_s(self, active: Active) -> FloatArray:
        """Return the steps/s of each row on each type of this part, (k, p); 0 where gangs that stay leave no room."""
        if isinstance(self.rows, slice):
            return active.rates
        fits = self.layout.feasibility.mask_of(
            active.of_rows(self.rows, active.all_needs), active.of_rows(self.rows, active.sizes)
        )
        return np.where(fits, self.cells(active.rates), 0.0)

    def jobs(self, active: Active) -> JobColumns:
        """Return the part's jobs as columns of an allocation problem."""
        return active.columns(self.rows, self.steps_per_s(active))

    def column_held(self, active: Active) -> IntArray:
        """Return the column of the type that each row holds, (k,); -1: none, or one of which no worker is left."""
        place = np.full(len(active.rates[0]) + 1, -1)
        place[self.columns] = np.arange(len(self.columns))
        return place[active.column[self.rows]]

    def staying(self, active: Active, whole: Layout) -> list[tuple[str, AcceleratorType, float]]:
        """Return tier, type and number of the workers of each gang that stays; a shared one counts half each."""
        holders = Counter(self.kept.values())
        return [
            (active.jobs[row].spec.tier, whole.type_of[workers[0]], len(workers) / holders[workers])
            for row, workers in self.kept.items()
        ]

    def index_of(self, active: Active) -> dict[int, int]:
        """Return where each row of the active jobs is among the rows of this part."""
        return {row: index for index, row in enumerate(self.row_of(active))}

    def row_of(self, active: Active) -> Sequence[int]:
        """Return the rows of the active jobs that are in this part, in order."""
        return range(len(active.jobs)) if isinstance(self.rows, slice) else self.rows.tolist()


def free_part(
    active: Active, whole: Layout, cluster: ClusterColumns, away: Collection[WorkerId] = frozenset()
) -> FreePart:
    """Return what is left of `whole`, without the workers that are `away`, and of the active jobs, besides the gangs
    that no plan moves.
    """
    stays = (active.column >= 0) & (active.preemptible == 0)
    if not stays.any() and not away:
        every = np.arange(len(whole.types))
        return FreePart(rows=slice(None), kept={}, layout=whole, cluster=cluster, columns=every)
    kept = {row: active.workers[row] for row in np.flatnonzero(stays).tolist()}
    rows = np.flatnonzero(~stays)
    held = [(workers, active.all_needs[row]) for row, workers in kept.items()]
    others = active.of_rows(rows, active.all_needs)
    left = usable(whole.cluster, {}, [*away, *(worker for workers in kept.values() for worker in workers)])
    layout = Layout(left, used_of_kept(held, others, whole.cluster))
    return replace(part_of(rows, layout, whole), kept=kept)


def part_of(rows: IntArray, layout: Layout, whole: Layout) -> FreePart:
    """Return the part of these rows on the workers of `layout`, which are some of the `whole` cluster's."""
    columns = np.array([whole.types.index(name) for name in layout.types], dtype=np.int64)
    return FreePart(rows=rows, kept={}, layout=layout, cluster=ClusterColumns.of(layout.cluster), columns=columns)
