"""Inference services: what a user asked for, what a replica belongs to, and how far a service is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DemandBound = Literal["", "replicas_min", "replicas_max", "room", "down_after_s", "readiness"]
"""What keeps the number of replicas from being what the demand alone would ask for; "room": there are no more workers
that a replica may have, "readiness": some of those that are to stay are not ready, "": nothing."""
NODE = "node"  # a service that is spread by it has its replicas on different nodes
MEASURED: Literal["measured"] = "measured"  # instead of a stated demand
ANY_TYPE = ""  # stands for all accelerator types where a service states one rate
DEMAND_MAX = 1e9  # requests per second, and requests that wait, that anybody may state or report


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How it is found out whether a replica answers: a GET of `path` on its port, or for "" a TCP connection.

    Asked every `interval_s` seconds and answered within `timeout_s`; an answer below 400 passes. `failures` in a row
    mean that the replica does not answer.
    """

    path: str = ""
    interval_s: float = 1.0
    timeout_s: float = 1.0
    failures: int = 3

    @property
    def form(self) -> str:
        """Return what is asked, for sentences."""
        return f"GET {self.path}" if self.path else "a TCP connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where a replica counts its requests: a GET of `path` on its port answers in the text format of Prometheus.

    `requests` is the name of a counter of all requests so far, `queue` that of a gauge of those that wait; "": none.
    """

    path: str
    requests: str
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one replica was seen to do: requests per second, and requests that wait; both from 0 to DEMAND_MAX."""

    requests_per_s: float
    queue: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a replica needs besides its program: the port (0: any free one), and the checks of whether it answers.

    While `readiness` passes the replica is an endpoint; once `liveness` fails the replica is replaced (None: only when
    its program ends). `metrics`: where its load is read; None: nowhere.
    """

    port: int
    readiness: Check
    liveness: Check | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSpec:
    """How the number of a service's replicas follows its demand (gavel/mechanism/services/demand.py).

    `rates`: requests per second that one replica answers within its latency goal, by accelerator type, or one for
    ANY_TYPE. `stated`: requests per second that are asked for; None: what the replicas measure. The replicas together
    are to answer `headroom` (a fraction) more than is asked for, and become fewer only after the lower demand has
    lasted `down_after_s` seconds.
    """

    rates: Mapping[str, float]
    stated: float | None = None
    headroom: float = 0.2
    down_after_s: float = 300.0

    @property
    def stated_rate(self) -> float | Mapping[str, float]:
        """Return the rate as its user stated it: one number, or one for each accelerator type."""
        return self.rates.get(ANY_TYPE, self.rates)

    @property
    def is_by_type(self) -> bool:
        """Return True if the rates differ by accelerator type, so that each replica is made for one."""
        return ANY_TYPE not in self.rates

    def answered(self, replicas: Mapping[str, int]) -> float:
        """Return the requests per second that so many replicas of each type answer within the latency goal."""
        return sum(self.rates.get(name, 0.0) * count for name, count in replicas.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """What a user asked of a service: `replicas` now, and between which numbers that may be changed.

    Of these at least `min_available` are ready through every planned act. `spread_by` is `node`, or a label of nodes
    such as `rack`, in whose values the replicas are apart; "": nothing. `spread_hard`: a replica waits rather than
    join another one there. `surge`: how many replicas more than `replicas` there may be while some are replaced. A
    replica that leaves has `drain_s` seconds for its requests; a new version has `rollout_s` seconds to get its next
    replica ready. `version` grows with each change of the program. With `demand` the number follows it, and `replicas`
    is the number until a demand is known.
    """

    replicas: int
    replicas_min: int
    replicas_max: int
    min_available: int
    serving: Serving
    spread_by: str = ""
    spread_hard: bool = False
    surge: int = 1
    drain_s: float = 10.0
    rollout_s: float = 600.0
    version: int = 1
    demand: DemandSpec | None = None

    def available_of(self, replicas: int) -> int:
        """Return how many of so many replicas are ready through every planned act; without a surge one may leave."""
        return max(0, min(replicas - (self.surge == 0), self.min_available))

    @property
    def stated_demand(self) -> float | Literal["measured"] | None:
        """Return the requests per second that its user stated, MEASURED, or None if the number follows no demand."""
        if self.demand is None:
            return None
        return MEASURED if self.demand.stated is None else self.demand.stated

    def wanted_by(self, status: "ServiceStatus | None") -> int:
        """Return how many replicas it is to have: as many as its demand leads to, else as its user stated."""
        demand = status.demand if status and self.demand else None
        return self.replicas if demand is None or demand.replicas is None else sum(demand.replicas.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What makes a job the replica of a service: whose, of which version of its program, and how it is reached.

    `nodes` are those that spreading leaves it in the round that is being planned; (): any. `accelerator_type`: the one
    that it was made for by the demand; "": any.
    """

    service: str  # the id of the service's job
    version: int
    serving: Serving
    drain_s: float = 10.0
    nodes: tuple[str, ...] = ()
    accelerator_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandStatus:
    """What is known of a service's demand, and the replicas that it leads to; demands in requests per second.

    `level`: the demand now, as it was last known (None: it never was). `recent`: for each part of the last
    `down_after_s` seconds (number of the part, largest demand, largest demand or forecast). `slot`: the part of a day
    that is going on, counted from 1970, and its largest demand. `daily`: the typical largest demand in each part of a
    day, UTC; a negative one is not known, and (): none is. `forecast`: the demand `lead_s` seconds from now.
    `needed`: what the replicas are to answer. `replicas`: how many are wanted, by accelerator type. `bound`: what keeps
    the number from being what the demand alone would ask for; "": nothing. `start_s`: seconds from made to ready of the
    last replicas. `exchanged_at_s`: when replicas last began to give way to others of which training loses less.
    """

    level: float | None = None
    recent: tuple[tuple[int, float, float], ...] = ()
    slot: tuple[int, float] = (0, 0.0)
    daily: tuple[float, ...] = ()
    forecast: float = 0.0
    lead_s: float = 0.0
    needed: float = 0.0
    replicas: Mapping[str, int] | None = None
    bound: DemandBound = ""
    start_s: tuple[float, ...] = ()
    exchanged_at_s: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How far a service is, as the scheduler saw it last.

    `stable` is the newest version of which all replicas were ready at once, 0: none was yet; `refused` the newest one
    that was given up. `wanted` is the version that replicas are made of, and `progress_at_s` when that version came, or
    last got a replica ready. `failures` counts its replicas that ended by themselves since then; no other is made
    before `retry_at_s`. `demand`: of a service whose replicas follow it.
    """

    stable: int = 0
    refused: int = 0
    wanted: int = 0
    progress_at_s: float = 0.0
    failures: int = 0
    retry_at_s: float = 0.0
    replicas: int = 0
    ready: int = 0
    demand: DemandStatus | None = None
