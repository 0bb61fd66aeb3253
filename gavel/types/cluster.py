"""What there is to run on."""

from dataclasses import dataclass

AcceleratorType = str

WorkerId = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that can hold workers."""

    name: str
    cpu_cores: int = 1
    memory_bytes: int = 0
    region: str = "local"


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
