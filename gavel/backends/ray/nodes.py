"""Nodes and workers of a Ray cluster as ours: names that stay, though Ray's ids do not."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.accelerators import slug
from gavel.backends.gang import read_object
from gavel.backends.ray.slots import slots_of
from gavel.backends.ray.words import RayNode, Slot
from gavel.types import Node, Worker, WorkerId

NAME_LABEL = "gavel/node"
REGION_LABELS = ("ray.io/availability-region", "gavel/region")


def ray_nodes(listed: Iterable[Mapping[str, Any]]) -> tuple[RayNode, ...]:
    """The nodes that are alive, as `ray.nodes()` lists them, sorted by name.

    A node is called by its label `gavel/node`, else by its host; where several would be called the same, the id is
    added, so that a label should name them: names with an id change when Ray is restarted.
    """
    alive = [each for each in listed if each["Alive"]]
    names = node_names(alive)
    nodes = (_ray_node(each, names[str(each["NodeID"])]) for each in alive)
    return tuple(sorted(nodes, key=lambda node: node.name))


def node_names(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What each node that is alive is called, by Ray's id."""
    alive = {str(each["NodeID"]): _name(each) for each in listed if each["Alive"]}
    count = Counter(alive.values())
    return {ray_id: name if count[name] == 1 else f"{name}-{ray_id[:6]}" for ray_id, name in alive.items()}


def _ray_node(listed: Mapping[str, Any], name: str) -> RayNode:
    labels, resources = listed.get("Labels", {}), listed.get("Resources", {})
    ray_id = str(listed["NodeID"])
    slots = slots_of(resources, labels)
    return RayNode(
        ray_id=ray_id,
        name=name,
        address=str(listed["NodeManagerAddress"]),
        cpu_cores=int(resources.get("CPU", 0)),
        memory_bytes=int(resources.get("memory", 0)),
        region=next((labels[name] for name in REGION_LABELS if labels.get(name)), "local"),
        slots=slots,
    )


def _name(listed: Mapping[str, Any]) -> str:
    label = listed.get("Labels", {}).get(NAME_LABEL)
    return slug(label or str(listed["NodeManagerHostname"]).split(".")[0]) or "node"


def as_node(node: RayNode) -> Node:
    """The node as the scheduler knows nodes."""
    return Node(
        name=node.name,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        region=node.region,
        problem=node.problem,
    )


class Numbering:
    """Names of workers, `TYPE-NUMBER`, unique in the cluster; a node that returns finds its own again.

    Kept in a file, since leases in the store name workers. Numbers of nodes that are gone are given again only once
    `forget` has said that nothing refers to them.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        said = read_object(path) or {"nodes": {}}
        self._numbers: dict[str, dict[str, list[int]]] = said["nodes"]  # node -> type -> number of each worker

    def workers(self, node: str, slots: Sequence[Slot]) -> dict[WorkerId, Slot]:
        """The node's workers by name, in the order of its slots. Raises OSError if new names cannot be kept."""
        kinds = self._numbers.setdefault(node, {})
        named: dict[WorkerId, Slot] = {}
        used: Counter[str] = Counter()
        is_new = False
        for slot in slots:
            kind = slot.accelerator_type
            numbers = kinds.setdefault(kind, [])
            if used[kind] == len(numbers):
                numbers.append(self._next(kind))
                is_new = True
            named[f"{kind}-{numbers[used[kind]]}"] = slot
            used[kind] += 1
        if is_new:
            self._write()
        return named

    def forget(self, nodes: Iterable[str]) -> None:
        """These nodes' numbers may be given to others."""
        gone = [node for node in nodes if self._numbers.pop(node, None)]
        if gone:
            self._write()

    @property
    def nodes(self) -> frozenset[str]:
        """Every node that has numbers."""
        return frozenset(self._numbers)

    def _next(self, kind: str) -> int:
        taken = {number for kinds in self._numbers.values() for number in kinds.get(kind, ())}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _write(self) -> None:
        machine.write_json(self._path, {"nodes": self._numbers})


def as_worker(worker_id: WorkerId, node: str, slot: Slot, *, shares_core: bool) -> Worker:
    """The worker as the scheduler knows workers."""
    return Worker(
        id=worker_id,
        node=node,
        accelerator_type=slot.accelerator_type,
        price_usd_per_hour=slot.price_usd_per_hour,
        shares_core=shares_core,
    )
