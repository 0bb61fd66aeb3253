"""What each rank of a job needs of the place where it runs."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from gavel.types.cluster import AcceleratorType, Node, Worker
from gavel.types.regions import NOWHERE, plain_type

EXCLUDED = "!"  # before the name of an accelerator type: anything but that
NEEDS_KEPT = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a rank needs; the defaults need nothing but a worker.

    `accelerator_types` are names: those allowed, and with a leading `!` those ruled out. `node_labels` are pairs of key
    and value, sorted; a node must have all of them. `nodes` are the names of those allowed, `regions` those of the
    regions that it may be in; (): any. Where the cluster does not say how much it has of something, cores and memory of
    nodes count as enough, and memory of accelerators as none.
    """

    accelerator_types: tuple[AcceleratorType, ...] = ()
    accelerator_memory_bytes: int = 0
    node_labels: tuple[tuple[str, str], ...] = ()
    cpu_cores: int = 1
    memory_bytes: int = 0
    nodes: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    def allows_type(self, name: AcceleratorType) -> bool:
        """Return True if the job may run on accelerators of this type; a type also means that of each region."""
        names = {name, plain_type(name)}
        if any(f"{EXCLUDED}{each}" in self.accelerator_types for each in names):
            return False
        allowed = [each for each in self.accelerator_types if not each.startswith(EXCLUDED)]
        return not allowed or not names.isdisjoint(allowed)

    def allows_worker(self, worker: Worker) -> bool:
        """Return True if the worker's accelerator is of an allowed type and has enough memory."""
        return self.allows_type(worker.accelerator_type) and worker.memory_bytes >= self.accelerator_memory_bytes

    def allows_node(self, node: Node) -> bool:
        """Return True if the node is in an allowed region, has the labels, and cores and memory for one rank."""
        has_labels = all(node.labels.get(key) == value for key, value in self.node_labels)
        has_cores = not node.cpu_cores or self.cpu_cores <= max(1, node.cpu_cores)
        is_allowed = not self.nodes or node.name in self.nodes
        is_near = not self.regions or node.region in self.regions
        return (
            is_allowed
            and is_near
            and has_labels
            and has_cores
            and (not node.memory_bytes or self.memory_bytes <= node.memory_bytes)
        )

    def colocated_with(self, other: "Needs") -> Self:
        """Return what two ranks on one worker need together; no type is left if one allows none of the other's."""
        if self == other == NO_NEEDS:
            return self
        return replace(
            self,
            accelerator_types=both_types(self.accelerator_types, other.accelerator_types),
            accelerator_memory_bytes=self.accelerator_memory_bytes + other.accelerator_memory_bytes,
            node_labels=tuple(sorted({*self.node_labels, *other.node_labels})),
            cpu_cores=max(1, _stated(self.cpu_cores) + _stated(other.cpu_cores)),
            memory_bytes=self.memory_bytes + other.memory_bytes,
            regions=_both_regions(self.regions, other.regions),
        )


@lru_cache(maxsize=NEEDS_KEPT)
def needs_of(
    accelerator_types: tuple[AcceleratorType, ...],
    accelerator_memory_bytes: int,
    node_labels: tuple[tuple[str, str], ...],
    cpu_cores: int,
    memory_bytes: int,
    nodes: tuple[str, ...] = (),
    regions: tuple[str, ...] = (),
) -> Needs:
    """Return the needs with these fields, the very same ones for the same fields: many jobs need the same."""
    return Needs(
        accelerator_types=accelerator_types,
        accelerator_memory_bytes=accelerator_memory_bytes,
        node_labels=node_labels,
        cpu_cores=cpu_cores,
        memory_bytes=memory_bytes,
        nodes=nodes,
        regions=regions,
    )


def _stated(cpu_cores: int) -> int:
    """One core is what a worker comes with; who wants more says so."""
    return cpu_cores if cpu_cores > 1 else 0


def both_types(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types that both allow, in the form of `Needs.accelerator_types`."""
    excluded = {name for name in (*one, *other) if name.startswith(EXCLUDED)}
    allowed = [{name for name in each if not name.startswith(EXCLUDED)} for each in (one, other)]
    if not all(allowed):
        return tuple(sorted(excluded | allowed[0] | allowed[1]))
    shared = allowed[0] & allowed[1]
    return tuple(sorted(excluded | (shared or {*allowed[0], *(f"{EXCLUDED}{name}" for name in allowed[0])})))


def _both_regions(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The regions that both allow."""
    if not (one and other):
        return one or other
    return tuple(sorted({*one} & {*other})) or (NOWHERE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What gangs hold of a node: workers that the cluster does not list as free, cores and memory."""

    workers: int = 0
    cpu_cores: int = 0
    memory_bytes: int = 0


NO_NEEDS = Needs()
