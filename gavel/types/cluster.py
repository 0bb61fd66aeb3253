"""What there is to run on."""

from dataclasses import dataclass
from enum import StrEnum

AcceleratorType = str

WorkerId = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that can hold workers. `problem`: why its workers cannot be used now, and what to do; "": they can."""

    name: str
    cpu_cores: int = 1
    memory_bytes: int = 0
    region: str = "local"
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One accelerator on a node. `shares_core` says that another worker uses the same physical core."""

    id: WorkerId
    node: str
    accelerator_type: AcceleratorType
    price_usd_per_hour: float = 1.0
    shares_core: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Every node and worker there is now."""

    nodes: tuple[Node, ...] = ()
    workers: tuple[Worker, ...] = ()

    @property
    def accelerator_types(self) -> tuple[AcceleratorType, ...]:
        """Names of the accelerator types, sorted."""
        return tuple(sorted({worker.accelerator_type for worker in self.workers}))

    def capacity_workers(self) -> dict[AcceleratorType, int]:
        """Number of workers of each accelerator type."""
        return {t: sum(w.accelerator_type == t for w in self.workers) for t in self.accelerator_types}


class NodeState(StrEnum):
    """What a node is to the scheduler. Only READY nodes are given new leases."""

    READY = "ready"
    CORDONED = "cordoned"  # gangs there go on to the end of their leases
    DRAINING = "draining"  # the same, and no later than the end of the window
    DRAINED = "drained"  # nothing runs there any more; safe to switch off
    LOST = "lost"  # not seen any more; what an operator wished for it is kept for its return


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node that was seen once, and what an operator wished for it: nothing, a cordon, or a drain by an instant."""

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
