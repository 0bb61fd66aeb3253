"""What is simulated, and what came of it."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from gavel.config import Settings
from gavel.simulator.cluster import Throughput
from gavel.simulator.report import JobRow
from gavel.simulator.timeline import Timeline
from gavel.types import AcceleratorType, Cluster, FloatArray, Tier
from workloads.traces.throughputs import PairThroughput


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutage:
    """A node that goes away and comes back; `is_drain`: offered no more, but its gangs end with their leases."""

    node: str
    from_s: float
    until_s: float
    is_drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated. `measure`: jobs [first, last) count, arrivals go on until they have ended; None: all.

    `spread` holds the steps/s of gangs over several nodes (None: as fast as on one), which policies do not know;
    `switch_cost_s` is what each start of a gang costs before its first step, by job kind; `""`: any other kind.
    `beside` holds the steps/s of a gang that shares its workers with another (None: gangs never do).

    Only the whole service knows the rest: `is_estimated` hides the throughputs from it, so that it has to measure them;
    nodes go away and come back (`outages`), and with them what gangs did since the last checkpoint.
    """

    cluster: Cluster
    throughput: Throughput
    settings: Settings
    tiers: Sequence[Tier] = (Tier(name="default"),)
    measure: tuple[int, int] | None = None
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    spread: Throughput | None = None
    beside: PairThroughput | None = None
    is_estimated: bool = False
    outages: Sequence[NodeOutage] = ()
    checkpoint_period_s: float = inf

    @property
    def needs_service(self) -> bool:
        """True if the lean replay cannot run it."""
        return self.is_estimated or bool(self.outages) or self.settings.minimum_run_s > 0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a run counts as it goes. Worker seconds: (tiers, types), shared ones counted once; envy: (tiers,).

    `packed`: leases that shared their workers. `cpu_s`: CPU, `solve_s`: wall time.
    """

    rounds: int = 0
    solves: int = 0
    failed_solves: int = 0
    starts: int = 0
    kept: int = 0
    packed: int = 0
    jobs_seen: int = 0
    most_active: int = 0
    began_at_s: float = 0.0
    ended_at_s: float = 0.0
    busy_s: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    envy: FloatArray = field(default_factory=lambda: np.zeros(1))
    solve_s: "array[float]" = field(default_factory=lambda: array("d"))
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of it: the measured jobs in order of arrival, what was counted, and the course over time."""

    rows: Sequence[JobRow]
    tally: Tally
    timeline: Timeline
    accelerator_types: tuple[str, ...]
    utilisation: float


def prices_of(cluster: Cluster) -> dict[AcceleratorType, float]:
    """Mean price per worker hour of each type, in the order of the cluster's types."""
    by_type = {name: [w for w in cluster.workers if w.accelerator_type == name] for name in cluster.accelerator_types}
    return {name: sum(w.price_usd_per_hour for w in workers) / len(workers) for name, workers in by_type.items()}
