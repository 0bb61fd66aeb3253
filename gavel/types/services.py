"""Inference services: what a user asked for, what a replica belongs to, and how far a service is."""

from dataclasses import dataclass

NODE = "node"  # a service that is spread by it has its replicas on different nodes


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
class Serving:
    """What a replica needs besides its program: the port (0: any free one), and the checks of whether it answers.

    While `readiness` passes the replica is an endpoint; once `liveness` fails the replica is replaced (None: only when
    its program ends).
    """

    port: int
    readiness: Check
    liveness: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """What a user asked of a service: `replicas` now, and between which numbers that may be changed.

    Of these at least `min_available` are ready through every planned act. `spread_by` is `node`, or a label of nodes
    such as `rack`, in whose values the replicas are apart; "": nothing. `spread_hard`: a replica waits rather than
    join another one there. `surge`: how many replicas more than `replicas` there may be while some are replaced. A
    replica that leaves has `drain_s` seconds for its requests; a new version has `rollout_s` seconds to get its next
    replica ready. `version` grows with each change of the program.
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

    def available_of(self, replicas: int) -> int:
        """Return how many of so many replicas are ready through every planned act; without a surge one may leave."""
        return max(0, min(replicas - (self.surge == 0), self.min_available))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What makes a job the replica of a service: whose, of which version of its program, and how it is reached.

    `nodes` are those that spreading leaves it in the round that is being planned; (): any.
    """

    service: str  # the id of the service's job
    version: int
    serving: Serving
    drain_s: float = 10.0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How far a service is, as the scheduler saw it last.

    `stable` is the newest version of which all replicas were ready at once, 0: none was yet; `refused` the newest one
    that was given up. `wanted` is the version that replicas are made of, and `progress_at_s` when that version came, or
    last got a replica ready. `failures` counts its replicas that ended by themselves since then; no other is made
    before `retry_at_s`.
    """

    stable: int = 0
    refused: int = 0
    wanted: int = 0
    progress_at_s: float = 0.0
    failures: int = 0
    retry_at_s: float = 0.0
    replicas: int = 0
    ready: int = 0
