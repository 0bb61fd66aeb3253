"""The cluster: nodes, workers and the states of nodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

AcceleratorType = str

LOCAL_REGION = "local"  # of a node that names none

WorkerId = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that can hold workers; 0 cores or bytes: not known.

    `problem`: why its workers cannot be used now, and what to do; "": they can.
    """

    name: str
    cpu_cores: int = 0
    memory_bytes: int = 0
    region: str = LOCAL_REGION
    problem: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One accelerator on a node. `memory_bytes` is the accelerator's own, 0: not known.

    `shares_core` says that another worker uses the same physical core.
    """

    id: WorkerId
    node: str
    accelerator_type: AcceleratorType
    price_usd_per_hour: float = 1.0
    shares_core: bool = False
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes and workers that are present now."""

    nodes: tuple[Node, ...] = ()
    workers: tuple[Worker, ...] = ()

    @property
    def accelerator_types(self) -> tuple[AcceleratorType, ...]:
        """Return the names of the accelerator types, sorted."""
        return tuple(sorted({worker.accelerator_type for worker in self.workers}))

    def capacity_workers(self) -> dict[AcceleratorType, int]:
        """Return the number of workers of each accelerator type."""
        counts = Counter(worker.accelerator_type for worker in self.workers)
        return {name: counts[name] for name in sorted(counts)}

    def mean_price_usd_per_hour(self) -> dict[AcceleratorType, float]:
        """Return the mean price of a worker of each accelerator type, USD an hour, in the order of the types."""
        prices: dict[AcceleratorType, list[float]] = {name: [] for name in self.accelerator_types}
        for worker in self.workers:
            prices[worker.accelerator_type].append(worker.price_usd_per_hour)
        return {name: sum(of_type) / len(of_type) for name, of_type in prices.items()}


class NodeState(StrEnum):
    """The state of a node. Only READY nodes are given new leases."""

    READY = "ready"
    CORDONED = "cordoned"  # gangs there go on to the end of their leases
    DRAINING = "draining"  # the same, and no later than the end of the window
    DRAINED = "drained"  # nothing runs there any more; safe to switch off
    LOST = "lost"  # not present any more; the operator's request is kept for its return


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The status of a node that was observed once, and what an operator requested: nothing, a cordon, or a drain."""

    name: str
    state: NodeState = NodeState.READY
    since_s: float = 0.0
    is_cordoned: bool = False
    drain_by_s: float | None = None
    by: str = ""

    @property
    def is_schedulable(self) -> bool:
        """True if new leases may be given there."""
        return self.state is NodeState.READY
