"""Names of nodes and workers that the scheduler plans with: they stay the same when nodes go and come back."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType

from gavel.backends import machine
from gavel.backends.nodes.protocol import ListedNode, Slot
from gavel.types import Cluster, Node, RoundPlan, Worker, WorkerId


def as_node(node: ListedNode, problem: str) -> Node:
    """Return the node as the scheduler's type, with what keeps its accelerators from being used."""
    return Node(
        name=node.name,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        region=node.region,
        problem=problem,
        labels=node.labels,
    )


class Numbering:
    """Names of workers, `TYPE-NUMBER`, unique in the cluster; a node that returns gets its old names again.

    Stored in a file, since leases in the store name workers. Numbers of nodes that are gone are given again only once
    `forget` has said that nothing refers to them. `node_of` is the node of each worker that the store names, "" if it
    is away: what a service with a state folder of its own has named. It replaces a file that is not there, or not
    `is_current`.
    """

    def __init__(self, path: Path, node_of: Mapping[WorkerId, str] = MappingProxyType({}), *, is_current: bool) -> None:
        self._path = str(path)
        stored = machine.read_object(path) if is_current else None
        self._numbers: dict[str, dict[str, list[int]]] = {}  # node -> type -> number of each worker
        if stored is not None:
            self._numbers = stored["nodes"]
        elif node_of:
            self._numbers = _numbers_in(node_of)
            self._write()

    def workers(self, node: str, slots: Sequence[Slot]) -> dict[WorkerId, Slot]:
        """Return the node's workers by name, in slot order. Raises OSError if new names cannot be stored."""
        kinds = self._numbers.setdefault(node, {})
        named: dict[WorkerId, Slot] = {}
        used: Counter[str] = Counter()
        is_new, free = False, dict[str, Iterator[int]]()
        for slot in slots:
            kind = slot.accelerator_type
            numbers = kinds.setdefault(kind, [])
            if used[kind] == len(numbers):
                if kind not in free:
                    free[kind] = self._free(kind)
                numbers.append(next(free[kind]))
                is_new = True
            named[f"{kind}-{numbers[used[kind]]}"] = slot
            used[kind] += 1
        if is_new:
            self._write()
        return named

    def swap(self, one: WorkerId, other: WorkerId) -> None:
        """Give each of two workers of one type the other's place. Raises OSError if that cannot be stored."""
        kind, _, first = one.rpartition("-")
        second = other.rpartition("-")[2]
        new = {int(first): int(second), int(second): int(first)}
        for kinds in self._numbers.values():
            if kind in kinds:
                kinds[kind] = [new.get(number, number) for number in kinds[kind]]
        self._write()

    def forget(self, nodes: Iterable[str]) -> None:
        """Free these nodes' numbers for others."""
        gone = [node for node in nodes if self._numbers.pop(node, None)]
        if gone:
            self._write()

    @property
    def nodes(self) -> frozenset[str]:
        """Return the names of all nodes that have numbers."""
        return frozenset(self._numbers)

    def _free(self, kind: str) -> Iterator[int]:
        """Return the numbers that no worker of the type has, the lowest first."""
        taken = {number for kinds in self._numbers.values() for number in kinds.get(kind, ())}
        return (number for number in count() if number not in taken)

    def _write(self) -> None:
        machine.write_json(self._path, {"nodes": self._numbers})


def _numbers_in(node_of: Mapping[WorkerId, str]) -> dict[str, dict[str, list[int]]]:
    numbers: dict[str, dict[str, list[int]]] = {}
    for worker, node in node_of.items():
        kind, _, number = worker.rpartition("-")
        if number.isdecimal():  # a worker of another backend may have another name
            numbers.setdefault(node, {}).setdefault(kind, []).append(int(number))
    return numbers


def node_of_workers(cluster: Cluster, plans: Iterable[RoundPlan]) -> dict[WorkerId, str]:
    """Return the node of each worker that the store names, in the order of its slots; "" for nodes that are away."""
    leased = {worker: "" for plan in plans for lease in plan.leases for worker in lease.worker_ids}
    present = {worker.id: worker.node for worker in cluster.workers}
    return present | {worker: node for worker, node in leased.items() if worker not in present}


def as_worker(worker_id: WorkerId, node: str, slot: Slot, *, shares_core: bool) -> Worker:
    """Return the worker as the scheduler's type."""
    return Worker(
        id=worker_id,
        node=node,
        accelerator_type=slot.accelerator_type,
        price_usd_per_hour=slot.price_usd_per_hour,
        shares_core=shares_core,
        memory_bytes=slot.memory_bytes,
    )
