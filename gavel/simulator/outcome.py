"""What is simulated, and what it results in."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from gavel.config import Settings
from gavel.simulator.cluster import Throughput
from gavel.simulator.report import JobResult
from gavel.simulator.timeline import Timeline
from gavel.types import Cluster, FloatArray, Tier
from workloads.traces.throughputs import PairThroughput


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutage:
    """A node that goes away and comes back. `is_drain`: no new gangs start there; others end with their leases."""

    node: str
    from_s: float
    until_s: float
    is_drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated.

    Only the jobs [first, last) of `measure` count, and jobs arrive until these have ended; None: all.

    `spread`: steps/s of gangs over several nodes, which policies do not see (None: as fast as on one node).
    `switch_cost_s`: seconds that each start of a gang costs before its first step, by job kind (key `""`: all other
    kinds). `colocated`: steps/s of a gang that shares its workers with another (None: gangs never share).

    `is_elastic`: some jobs have a choice of sizes or plans, which rounds make; else each job keeps those that it has.

    Only the whole service can simulate the rest. `needs_driver`: some jobs wait for others. A tier may have a monthly
    limit, or one of workers that stay. `is_estimated`: throughputs are hidden from the service, which has to measure
    them.
    `outages`: nodes go away and come back; what gangs did there since their last checkpoint is lost.
    Jobs move between regions if the settings tell these apart; a checkpoint then has `checkpoint_bytes`.
    """

    cluster: Cluster
    throughput: Throughput
    settings: Settings
    tiers: Sequence[Tier] = (Tier(name="default"),)
    measure: tuple[int, int] | None = None
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    spread: Throughput | None = None
    colocated: PairThroughput | None = None
    is_elastic: bool = False
    needs_driver: bool = False
    is_estimated: bool = False
    outages: Sequence[NodeOutage] = ()
    checkpoint_period_s: float = inf
    checkpoint_bytes: int | None = None

    @property
    def needs_service(self) -> bool:
        """Return True if the lean simulation cannot run it, or knows less of it: what restarts of elastic jobs cost."""
        return self.is_elastic or self.is_beyond_lean

    @property
    def is_beyond_lean(self) -> bool:
        """Return True if the lean simulation cannot run it."""
        has_quota = any(
            tier.accelerator_hours_per_month or tier.budget_usd_per_month or tier.non_preemptible_workers is not None
            for tier in self.tiers
        )
        is_whole = self.needs_driver or self.is_estimated or bool(self.outages) or self.settings.regions is not None
        return is_whole or has_quota or self.settings.minimum_run_s > 0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a run counts as it goes. Worker seconds are (tiers, types), shared workers counted once; envy is (tiers,).

    `packed`: leases on shared workers. `moves`: of jobs between regions, with what they copied and what that cost.
    `cpu_s`: CPU seconds. `solve_s`: wall seconds of each solve.
    """

    rounds: int = 0
    solves: int = 0
    failed_solves: int = 0
    starts: int = 0
    kept: int = 0
    packed: int = 0
    moves: int = 0
    egress_bytes: int = 0
    egress_usd: float = 0.0
    jobs_seen: int = 0
    most_active: int = 0
    began_at_s: float = 0.0
    ended_at_s: float = 0.0
    busy_s: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    envy: FloatArray = field(default_factory=lambda: np.zeros(1))
    solve_s: "array[float]" = field(default_factory=lambda: array("d"))
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOutcome:
    """The outcome of a run: the measured jobs in order of arrival, what was counted, and the course over time."""

    rows: Sequence[JobResult]
    tally: Tally
    timeline: Timeline
    accelerator_types: tuple[str, ...]
    utilisation: float
