"""Chooses the workers of each gang: those that it holds already, else workers on as few nodes as possible."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from gavel.mechanism.cluster.feasibility import Feasibility, Room, Workers
from gavel.mechanism.cluster.packing import Gang, PackingProblem, pack
from gavel.types import NO_NEEDS, AcceleratorType, Cluster, Needs, Used, WorkerId


class Layout:
    """A cluster's workers by accelerator type and node, computed once for a cluster and not in each round.

    `used`: what gangs that are not placed here hold of the nodes.
    """

    def __init__(self, cluster: Cluster, used: Mapping[str, Used] | None = None) -> None:
        self.cluster, self.used = cluster, used or {}
        self.type_of = {worker.id: worker.accelerator_type for worker in cluster.workers}
        self.node_of = {worker.id: worker.node for worker in cluster.workers}
        self.capacity_workers = cluster.capacity_workers()
        self.types = cluster.accelerator_types
        self.capacity = np.array([self.capacity_workers[name] for name in self.types], dtype=np.int64)
        self.workers_of: dict[AcceleratorType, list[WorkerId]] = {name: [] for name in self.capacity_workers}
        for worker in cluster.workers:
            self.workers_of[worker.accelerator_type].append(worker.id)
        on_node = Counter((worker.accelerator_type, worker.node) for worker in cluster.workers)
        largest_first: dict[AcceleratorType, list[int]] = {name: [] for name in self.capacity_workers}
        for (name, _), workers in on_node.most_common():
            largest_first[name].append(workers)
        self._on_largest_nodes = {name: list(accumulate(workers)) for name, workers in largest_first.items()}

    @cached_property
    def feasibility(self) -> Feasibility:
        """Return where jobs can run on these workers."""
        return Feasibility(self.cluster, self.used)

    def room(self) -> Room:
        """Return what is free if no gang is placed yet, for the caller to place gangs in."""
        return self.feasibility.room()

    def nodes(self, workers: Workers) -> int:
        """Return the number of nodes that the workers are on."""
        return len({self.node_of[worker] for worker in workers})

    def fewest_nodes(self, accelerator_type: AcceleratorType, size: int) -> int:
        """Return the least number of nodes that hold `count` workers of the type if all are free."""
        return 1 + bisect_left(self._on_largest_nodes[accelerator_type], size)

    def is_gang(self, workers: Workers, accelerator_type: AcceleratorType, size: int) -> bool:
        """Return True if these are exactly so many workers, all in the cluster and of the type."""
        type_of = self.type_of
        if size == 1:
            return len(workers) == 1 and type_of.get(workers[0]) == accelerator_type
        return len(workers) == size and all(type_of.get(each) == accelerator_type for each in workers)


class _Free:
    """The free workers of one type by node; placing gangs changes nothing else."""

    def __init__(self, layout: Layout, accelerator_type: AcceleratorType, taken: set[WorkerId]) -> None:
        self._node_of = layout.node_of
        self.by_node: dict[str, list[WorkerId]] = {}
        for worker in layout.workers_of[accelerator_type]:
            if worker not in taken:
                self.by_node.setdefault(self._node_of[worker], []).append(worker)
        self._with: dict[int, dict[str, None]] = {}  # number of free workers -> the nodes that have it
        for node, ids in self.by_node.items():
            self._with.setdefault(len(ids), {})[node] = None
        self._singles: list[WorkerId] = []

    def take_one(self) -> Workers:
        """Take a worker for a gang of one when no larger gang follows: from the node with the fewest free workers."""
        if not self._singles:
            tightest_last = sorted(reversed(self.by_node.values()), key=len, reverse=True)
            self._singles = [worker for ids in tightest_last for worker in reversed(ids)]
            self.by_node, self._with = {}, {}
        return (self._singles.pop(),)

    def take(self, count: int) -> Workers:
        """Take `count` workers: of the fullest node that has enough free; else all free ones of a node, and go on."""
        sizes = [size for size, nodes in self._with.items() if nodes]
        fitting = min((size for size in sizes if size >= count), default=None)
        if fitting is not None:
            return self._from(next(iter(self._with[fitting])), count)
        assert sizes, f"{count} more workers were chosen than are free"
        fullest = max(sizes)
        return self._from(next(iter(self._with[fullest])), fullest) + self.take(count - fullest)

    def give_back(self, workers: Workers) -> None:
        """Make these workers free again."""
        for worker in workers:
            node = self._node_of[worker]
            self._resize(node, [worker, *self.by_node.get(node, [])])

    def _from(self, node: str, count: int) -> Workers:
        ids = self.by_node[node]
        self._resize(node, ids[count:])
        return tuple(ids[:count])

    def _resize(self, node: str, ids: list[WorkerId]) -> None:
        self._with.get(len(self.by_node.get(node, [])), {}).pop(node, None)
        self.by_node[node] = ids
        if ids:
            self._with.setdefault(len(ids), {})[node] = None


def place(
    chosen: Sequence[Gang],
    layout: Layout,
    held: Mapping[int, Workers],
    *,
    pairs: Mapping[int, tuple[int, int]] | None = None,
    pinned: Collection[int] = (),
    gathers: Collection[int] = (),
    needs: Mapping[int, Needs] | None = None,
    worth: Mapping[int, float] | None = None,
) -> dict[int, Workers]:
    """Return the workers of each chosen gang. Gangs that stay keep theirs; the others are placed, the largest first.

    `held`: the workers of each job's row in the round before; `pairs`: the rows of the jobs of each packed pair. Rows
    of `pinned` stay first. A row of `gathers` that stays, but on more nodes than it needs by now, moves to fewer. The
    caller has made sure that the gangs fit their types. `needs`: of the ranks of rows that need more than workers; then
    gangs for which there is no room are left out, those of the least `worth` if there is a choice (packing.py).
    """
    placed = _staying(chosen, layout, held, pairs or {}, pinned)
    if needs or layout.used:
        of_row = {row: (needs or {}).get(row, NO_NEEDS) for row, _, _ in chosen}
        return pack(
            PackingProblem(
                gangs=chosen,
                new_room=layout.room,
                needs=of_row,
                staying=placed,
                pinned=pinned,
                gathers=gathers,
                worth=worth or {},
            )
        )
    taken = {worker for workers in placed.values() for worker in workers}
    kept = [gang for gang in chosen if gang[0] in gathers and gang[0] in placed]
    spread = [gang for gang in kept if gang[2] > 1 and layout.nodes(placed[gang[0]]) > 1]
    rest = [gang for gang in chosen if gang[0] not in placed]
    free: dict[AcceleratorType, _Free] = {}
    for name in {name for _, name, _ in (*rest, *spread)}:
        free[name] = _Free(layout, name, taken)
    order = sorted(rest, key=lambda gang: (-gang[2], gang[0]))
    for row, name, size in order:
        if size > 1:
            placed[row] = free[name].take(size)
    for gang in spread:
        placed[gang[0]] = _gathered(gang, layout, free[gang[1]], placed[gang[0]])
    for row, name, size in order:
        if size == 1:
            placed[row] = free[name].take_one()
    return placed


def _gathered(gang: Gang, layout: Layout, free: _Free, workers: Workers) -> Workers:
    """The workers of the gang on fewer nodes if there is room, else those that it has."""
    room = Counter({node: len(ids) for node, ids in free.by_node.items()})
    room.update(layout.node_of[worker] for worker in workers)
    left, needed = gang[2], 0
    for _, count in room.most_common():
        left, needed = left - count, needed + 1
        if left <= 0:
            break
    if needed >= layout.nodes(workers):
        return workers
    free.give_back(workers)
    return free.take(gang[2])


def _staying(
    chosen: Sequence[Gang],
    layout: Layout,
    held: Mapping[int, Workers],
    pairs: Mapping[int, tuple[int, int]],
    pinned: Collection[int],
) -> dict[int, Workers]:
    """The workers of the chosen gangs that stay where one of their jobs was, on the same type; as many as possible.

    Two gangs want the same workers only where a pair ends or begins; then a matching decides which gang stays.
    """
    if not pairs and len(set(held.values())) == len(held):
        return {row: held[row] for row, name, size in chosen if layout.is_gang(held.get(row, ()), name, size)}
    wanted: dict[int, list[Workers]] = {}
    for row, name, size in chosen:
        sets = dict.fromkeys(held.get(job, ()) for job in pairs.get(row, (row,)))
        wanted[row] = [workers for workers in sets if layout.is_gang(workers, name, size)]
    first = set(pinned) | {row for row, (one, other) in pairs.items() if held.get(one) == held.get(other)}
    stays = {row: sets[0] for row, sets in wanted.items() if sets and row in first}
    taken = set(stays.values())
    left = {row: [each for each in sets if each not in taken] for row, sets in wanted.items() if row not in stays}
    return stays | _matched({row: sets for row, sets in left.items() if sets})


def _matched(wanted: Mapping[int, Sequence[Workers]]) -> dict[int, Workers]:
    """Give each set of workers to one of the rows that want it, so that as many rows as possible get one."""
    if len({worker for sets in wanted.values() for worker in sets[0]}) == sum(len(sets[0]) for sets in wanted.values()):
        return {row: sets[0] for row, sets in wanted.items()}
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rows = list(wanted)
    candidates = list(dict.fromkeys(workers for sets in wanted.values() for workers in sets))
    number = {workers: index for index, workers in enumerate(candidates)}
    edges = [(index, number[workers]) for index, row in enumerate(rows) for workers in wanted[row]]
    ends = np.array(edges).T
    graph = csr_array((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(rows), len(candidates)))
    match = maximum_bipartite_matching(graph, perm_type="column")
    return {rows[index]: candidates[column] for index, column in enumerate(match.tolist()) if column >= 0}
