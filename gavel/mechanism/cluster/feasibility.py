"""Where jobs can run: the one answer for problems, profiling, backfill, forecasts, refusals and simulations.

What a job needs becomes zeros of the throughput matrix where fewer of its ranks fit on all nodes of a type than its
gang has. Placement asks the same `Room` node by node.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from gavel.types import (
    NO_NEEDS,
    AcceleratorType,
    BoolArray,
    Cluster,
    FloatArray,
    IntArray,
    JobSpec,
    Needs,
    Node,
    Used,
    Worker,
    WorkerId,
)

Workers = tuple[WorkerId, ...]
MOST_NEEDS = 4096
MOST_KEPT = 32  # answers; more are worked out anew faster than they are kept right


def used_by(held: Iterable[tuple[Workers, Needs]], node_of: Mapping[WorkerId, str]) -> dict[str, Used]:
    """Return what gangs on these workers hold of each node; two gangs on one worker need the sum of both."""
    of_worker: dict[WorkerId, Needs] = {}
    for workers, needs in held:
        for worker in workers:
            before = of_worker.get(worker)
            of_worker[worker] = needs if before is None else before.colocated_with(needs)
    workers_on, cores, memory = Counter[str](), Counter[str](), Counter[str]()
    for worker, needs in of_worker.items():
        if node := node_of.get(worker):
            workers_on[node] += 1
            cores[node] += needs.cpu_cores
            memory[node] += needs.memory_bytes
    return {
        node: Used(workers=count, cpu_cores=cores[node], memory_bytes=memory[node])
        for node, count in workers_on.items()
    }


class Room:
    """The free workers, cores and memory of N nodes. Taking and giving back change it, nothing else does.

    A node whose workers share cores counts one core for each worker.
    """

    def __init__(self, cluster: Cluster, used: Mapping[str, Used]) -> None:
        present = {node.name: node for node in cluster.nodes}
        for worker in cluster.workers:
            present.setdefault(worker.node, Node(name=worker.node))
        self.nodes = list(present.values())
        self.index_of = {node.name: index for index, node in enumerate(self.nodes)}
        self._type_of: dict[WorkerId, AcceleratorType] = {}
        self._node_of: dict[WorkerId, int] = {}
        self.free: dict[AcceleratorType, list[list[WorkerId]]] = {}
        self.count: dict[AcceleratorType, IntArray] = {}
        self._smallest: dict[AcceleratorType, FloatArray] = {}  # accelerator memory of a node's workers
        for worker in cluster.workers:
            self._add(worker)
        on_node = Counter(worker.node for worker in cluster.workers)
        self.cores = np.array([_cores_left(node, on_node[node.name], used.get(node.name)) for node in self.nodes])
        self.memory = np.array([_memory_left(node, used.get(node.name)) for node in self.nodes])
        self._allowed: dict[Needs, BoolArray] = {}
        self._fits: dict[tuple[AcceleratorType, Needs], IntArray] = {}  # answers of `ranks`, kept right

    def copy(self) -> "Room":
        """Return a room with the same free workers, cores and memory; either may change without the other."""
        other = copy(self)
        other.free = {name: list(nodes) for name, nodes in self.free.items()}
        other.count = {name: count.copy() for name, count in self.count.items()}
        other.cores, other.memory = self.cores.copy(), self.memory.copy()
        kept = self._fits if len(self._fits) <= MOST_KEPT else {}
        other._fits = {key: fits.copy() for key, fits in kept.items()}
        return other

    def _add(self, worker: Worker) -> None:
        name, node = worker.accelerator_type, self.index_of[worker.node]
        if name not in self.free:
            self.free[name] = [[] for _ in self.nodes]
            self.count[name] = np.zeros(len(self.nodes), dtype=np.int64)
            self._smallest[name] = np.full(len(self.nodes), np.inf)
        self.free[name][node].append(worker.id)
        self.count[name][node] += 1
        self._smallest[name][node] = min(self._smallest[name][node], worker.memory_bytes)
        self._type_of[worker.id], self._node_of[worker.id] = name, node

    def ranks(self, name: AcceleratorType, needs: Needs) -> IntArray:
        """Return how many ranks fit on the free workers of the type on each node, (N,), not to be written to."""
        if (name, needs) not in self._fits:
            self._fits[name, needs] = self._ranks(name, needs)
        return self._fits[name, needs]

    def _ranks(self, name: AcceleratorType, needs: Needs) -> IntArray:
        if name not in self.count or not needs.allows_type(name):
            return np.zeros(len(self.nodes), dtype=np.int64)
        fits: FloatArray = np.minimum(self.count[name], np.floor(self.cores / needs.cpu_cores))
        if needs.memory_bytes:
            fits = np.minimum(fits, np.floor(self.memory / needs.memory_bytes))
        fits = np.where(self._allows(needs) & (self._smallest[name] >= needs.accelerator_memory_bytes), fits, 0.0)
        return np.maximum(fits, 0.0).astype(np.int64)

    def _ranks_on(self, node: int, name: AcceleratorType, needs: Needs) -> int:
        """Return the element of `_ranks` for one node."""
        if name not in self.count or not needs.allows_type(name):
            return 0
        if not self._allows(needs)[node] or self._smallest[name][node] < needs.accelerator_memory_bytes:
            return 0
        fits = min(float(self.count[name][node]), float(self.cores[node]) / needs.cpu_cores)
        if needs.memory_bytes:
            fits = min(fits, float(self.memory[node]) / needs.memory_bytes)
        return max(0, math.floor(fits))

    def _allows(self, needs: Needs) -> BoolArray:
        if needs not in self._allowed:
            self._allowed[needs] = np.array([needs.allows_node(node) for node in self.nodes], dtype=np.bool_)
        return self._allowed[needs]

    def take(self, name: AcceleratorType, needs: Needs, size: int) -> Workers | None:
        """Take workers for a gang: of the node that has least to spare, else of as few nodes as possible, or None."""
        fits = self.ranks(name, needs)
        if int(fits.sum()) < size:
            return None
        taken: list[WorkerId] = []
        for node, ranks in self._shared_out(name, fits, size):
            ids = self.free[name][node]
            taken += ids[:ranks]
            self._use(node, name, ids[ranks:], needs, ranks)
        return tuple(taken)

    def _shared_out(self, name: AcceleratorType, fits: IntArray, size: int) -> list[tuple[int, int]]:
        """(node, ranks) of each node of a gang."""
        parts, left, fits = [], size, fits.copy()
        while left:
            enough = np.flatnonzero(fits >= left)
            if enough.size:
                tightest = enough[fits[enough] == fits[enough].min()]
                parts.append((int(tightest[self.count[name][tightest].argmin()]), left))
                break
            node = int(fits.argmax())
            parts.append((node, int(fits[node])))
            left -= int(fits[node])
            fits[node] = 0
        return parts

    def hold(self, workers: Workers, needs: Needs) -> bool:
        """Take these very workers, if they are free and the needs are met there; return whether they were taken."""
        places = Counter((self._node_of.get(worker, -1), self._type_of.get(worker, "")) for worker in workers)
        for (node, name), ranks in places.items():
            if node < 0 or self.ranks(name, needs)[node] < ranks:
                return False
            if not set(self.free[name][node]).issuperset(w for w in workers if self._node_of.get(w) == node):
                return False
        wanted = set(workers)
        for (node, name), ranks in places.items():
            self._use(node, name, [each for each in self.free[name][node] if each not in wanted], needs, ranks)
        return True

    def spread(self, workers: Workers) -> int:
        """Return the number of nodes that the workers are on."""
        return len({self._node_of[worker] for worker in workers})

    def give_back(self, workers: Workers, needs: Needs) -> None:
        """Make these workers free again, with what their ranks needed."""
        for worker in workers:
            node, name = self._node_of[worker], self._type_of[worker]
            self._use(node, name, [worker, *self.free[name][node]], needs, -1)

    def _use(self, node: int, name: AcceleratorType, ids: list[WorkerId], needs: Needs, ranks: int) -> None:
        self.free[name][node] = ids
        self.count[name][node] = len(ids)
        self.cores[node] -= ranks * needs.cpu_cores
        self.memory[node] -= ranks * needs.memory_bytes
        if len(self._fits) > MOST_KEPT:
            self._fits.clear()
        for (other, theirs), fits in self._fits.items():
            fits[node] = self._ranks_on(node, other, theirs)


def _cores_left(node: Node, workers: int, used: Used | None) -> float:
    used = used or Used()
    return max(node.cpu_cores, workers + used.workers) - used.cpu_cores if node.cpu_cores else np.inf


def _memory_left(node: Node, used: Used | None) -> float:
    return node.memory_bytes - (used.memory_bytes if used else 0) if node.memory_bytes else np.inf


def overfull(cluster: Cluster, used: Mapping[str, Used], names: Collection[str]) -> Iterator[str]:
    """Yield those of the nodes `names` of which gangs hold more cores or memory than there are."""
    workers = Counter(worker.node for worker in cluster.workers)
    for node in cluster.nodes:
        if node.name in names and (held := used.get(node.name)):
            free = workers[node.name] - held.workers
            if min(_cores_left(node, free, held), _memory_left(node, held)) < 0:
                yield node.name


class Feasibility:
    """Where jobs can run in a cluster of which gangs use a part already; m accelerator types, sorted by name."""

    def __init__(self, cluster: Cluster, used: Mapping[str, Used] | None = None) -> None:
        self.cluster, self.used = cluster, used or {}
        self.workers = cluster.capacity_workers()
        self.types = tuple(self.workers)
        self._ranks: dict[Needs, Mapping[AcceleratorType, int]] = {}

    @cached_property
    def _room(self) -> Room:
        return Room(self.cluster, self.used)

    def room(self) -> Room:
        """Return what is free if no gang is placed yet, for the caller to place gangs in."""
        return self._room.copy()

    def ranks(self, needs: Needs) -> Mapping[AcceleratorType, int]:
        """Return how many ranks with these needs fit on each type at once, if no other job is there."""
        if needs == NO_NEEDS and not self.used:
            return self.workers
        if needs not in self._ranks:
            if len(self._ranks) >= MOST_NEEDS:  # a replica that waits is offered other nodes each time
                self._ranks.clear()
            self._ranks[needs] = {name: int(self._room.ranks(name, needs).sum()) for name in self.types}
        return self._ranks[needs]

    def types_of(self, spec: JobSpec) -> tuple[AcceleratorType, ...]:
        """Return the types on which the job's whole gang can run."""
        return tuple(name for name, ranks in self.ranks(spec.needs).items() if ranks >= spec.scale_factor)

    def mask(self, specs: Sequence[JobSpec]) -> BoolArray:
        """Return where the gang of each of n jobs can run, (n, m) bool."""
        return self.mask_of([spec.needs for spec in specs], [spec.scale_factor for spec in specs])

    def mask_of(self, needs: Sequence[Needs], sizes: Sequence[int]) -> BoolArray:
        """Return where each of n gangs of these sizes, whose ranks have these needs, can run, (n, m) bool."""
        places: dict[int, int] = {}  # by identity: the same needs are mostly the same object, which is cheap to look up
        place_of = [places.setdefault(id(each), len(places)) for each in needs]
        different = dict(zip(place_of, needs, strict=True))
        ranks = np.array([[*self.ranks(each).values()] for each in different.values()], dtype=np.int64)
        of_each = ranks.reshape(len(different), len(self.types))[np.array(place_of, dtype=np.int64)]
        return np.asarray(of_each >= np.array(sizes, dtype=np.int64)[:, None])

    def has_place(self, needs: Needs, size: int) -> bool:
        """Return True if the gang can run on some type."""
        return any(ranks >= size for ranks in self.ranks(needs).values())
