"""Which workers of its accelerator type a gang gets: those it has, else as few nodes as can be."""

from collections.abc import Mapping, Sequence

import numpy as np

from gavel.types import AcceleratorType, Cluster, WorkerId


class Layout:
    """A cluster's workers by accelerator type and node, looked up once a cluster and not once a round."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.type_of = {worker.id: worker.accelerator_type for worker in cluster.workers}
        self.node_of = {worker.id: worker.node for worker in cluster.workers}
        self.capacity_workers = cluster.capacity_workers()
        self.types = cluster.accelerator_types
        self.capacity = np.array([self.capacity_workers[name] for name in self.types], dtype=np.int64)
        self.workers_of: dict[AcceleratorType, list[WorkerId]] = {name: [] for name in self.capacity_workers}
        for worker in cluster.workers:
            self.workers_of[worker.accelerator_type].append(worker.id)


class _Free:
    """The free workers of one type by node; taking from it is the only thing that placing changes."""

    def __init__(self, layout: Layout, accelerator_type: AcceleratorType, taken: set[WorkerId]) -> None:
        self.by_node: dict[str, list[WorkerId]] = {}
        for worker in layout.workers_of[accelerator_type]:
            if worker not in taken:
                self.by_node.setdefault(layout.node_of[worker], []).append(worker)
        self._singles: list[WorkerId] = []

    def take_one(self) -> tuple[WorkerId, ...]:
        """The next worker for a gang of one, when no larger gang comes any more: the tightest node is used up first."""
        if not self._singles:
            tightest_last = sorted(reversed(self.by_node.values()), key=len, reverse=True)
            self._singles = [worker for ids in tightest_last for worker in reversed(ids)]
        return (self._singles.pop(),)

    def take(self, count: int) -> tuple[WorkerId, ...]:
        """The tightest single node that holds the gang, else the fullest nodes one after the other."""
        fitting = [node for node, ids in self.by_node.items() if len(ids) >= count]
        if fitting:
            return self._from(min(fitting, key=lambda node: len(self.by_node[node])), count)
        workers: tuple[WorkerId, ...] = ()
        for node in sorted(self.by_node, key=lambda node: -len(self.by_node[node])):
            workers += self._from(node, count - len(workers))
        assert len(workers) == count, f"a gang of {count} was chosen where {len(workers)} workers are free"
        return workers

    def _from(self, node: str, count: int) -> tuple[WorkerId, ...]:
        ids = self.by_node[node]
        taken, self.by_node[node] = tuple(ids[:count]), ids[count:]
        if not self.by_node[node]:
            del self.by_node[node]
        return taken


def place(
    chosen: Sequence[tuple[int, AcceleratorType, int]],
    layout: Layout,
    held: Mapping[int, tuple[WorkerId, ...]],
) -> dict[int, tuple[WorkerId, ...]]:
    """Workers for each chosen (row of the job, type, scale factor). Gangs that stay keep theirs; then the largest go.

    `held`: the workers of each row in the round before. The caller has made sure that the gangs fit their types.
    """
    placed: dict[int, tuple[WorkerId, ...]] = {}
    taken: set[WorkerId] = set()
    rest = []
    for row, accelerator_type, size in chosen:
        workers = held.get(row, ())
        stays = len(workers) == size and layout.type_of.get(workers[0]) == accelerator_type
        stays = stays and (size == 1 or all(layout.type_of.get(each) == accelerator_type for each in workers))
        if stays and taken.isdisjoint(workers):
            placed[row] = workers
            taken.update(workers)
        else:
            rest.append((row, accelerator_type, size))
    free: dict[AcceleratorType, _Free] = {}
    for row, accelerator_type, size in sorted(rest, key=lambda gang: (-gang[2], gang[0])):
        if accelerator_type not in free:
            free[accelerator_type] = _Free(layout, accelerator_type, taken)
        placed[row] = free[accelerator_type].take(size) if size > 1 else free[accelerator_type].take_one()
    return placed
