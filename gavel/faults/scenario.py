"""What one run consists of: the cluster, the jobs, what clients ask for, and the faults. Drawn from a seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gavel.backends.several.names import outer
from gavel.types import AcceleratorType

SCALING = 0.8  # a gang of n workers of an elastic job is n to this power times as fast as one worker


TYPES = ("fast", "slow")  # of accelerators
MEMORY_BYTES = 16  # of every accelerator
ROUND_S = 20.0  # of the service
LONG_ROUND_S, LONGEST_ROUND_S = 40.0, 80.0  # of compositions; the longest only where no clock drifts much (P2)
COMPOSITIONS = (
    "",
    "max_min_fairness",
    f"equal_share/round_duration_s={LONG_ROUND_S:g}",
    "fifo/round_duration_s=10",
    f"least_attained_service/backfill=false/round_duration_s={LONG_ROUND_S:g}",
    "shortest_job_first/planner=published/round_duration_s=8",
    "least_remaining_work/price_moves=false",
    "equal_share/planner=published_shuffled/space_sharing=false",
    "hierarchical",
    "no_such_policy/round_duration_s=10",
    "fifo/no_such_part=1",
    f"max_min_fairness/round_duration_s={LONGEST_ROUND_S:g}",
)
"""What operators and the autopilot put in force: first that of the settings; two cannot be loaded."""
PLENTY_H, NO_CAP = 1e6, 1.0  # of a tier


class FaultKind(StrEnum):
    """What can go wrong. `target` of a fault is a process, a node or nothing, as said here."""

    CRASH = "crash"  # a process ends between two events
    CRASH_BEFORE_COMMIT = "crash_before_commit"  # of a process
    CRASH_AFTER_COMMIT = "crash_after_commit"
    CRASH_IN_EXCHANGE = "crash_in_exchange"  # after nodes have their orders, before the answers are taken
    PAUSE = "pause"  # a process is suspended between two events
    PAUSE_BEFORE_COMMIT = "pause_before_commit"
    PAUSE_AFTER_COMMIT = "pause_after_commit"
    CLOCK_STEP = "clock_step"  # of a process's machine, by `amount` seconds
    STORE_DOWN = "store_down"  # no read and no write succeeds
    ANSWER_LOST = "answer_lost"  # a commit succeeds, and its answer is lost; clients lose answers, too
    SOLVER = "solver"  # `amount` says how
    BRIDGE_DOWN = "bridge_down"  # the process that speaks with the nodes, of a process
    PARTITION = "partition"  # a node is cut off
    DELAY = "delay"  # orders to a node and its answers take up to `amount` seconds
    DUPLICATE = "duplicate"  # orders to a node come again `amount` seconds later
    REBOOT = "reboot"  # a node loses power and is back after `lasts_s`
    AGENT_CRASH = "agent_crash"  # of a node
    SUPERVISOR_PAUSE = "supervisor_pause"  # all supervisors of a node
    HANG = "hang"  # ranks on a node do nothing, and hold their lease
    DISK_FULL = "disk_full"  # no checkpoint can be written
    DISK_SLOW = "disk_slow"  # a checkpoint takes `amount` seconds
    DISK_TORN = "disk_torn"  # checkpoints that are written cannot be read back
    CONTROL_PLANE = "control_plane"  # it restarts empty: no groups, and every node joins anew with a new agent
    STATE_FOLDER_FULL = "state_folder_full"  # services can write nothing into their state folders
    ACCELERATOR_LOST = "accelerator_lost"  # a node has one less for a while; with `amount` it is booted for that
    CALLS_LATE = "calls_late"  # calls to the region of a node arrive when this ends
    ANSWERS_LATE = "answers_late"  # calls to the region of a node are carried out, and answered when this ends


CRASHES = (
    FaultKind.CRASH,
    FaultKind.CRASH_BEFORE_COMMIT,
    FaultKind.CRASH_AFTER_COMMIT,
    FaultKind.CRASH_IN_EXCHANGE,
)

OF_REGIONS = (FaultKind.CALLS_LATE, FaultKind.ANSWERS_LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, from `at_s` on for `lasts_s` seconds of true time."""

    at_s: float
    kind: FaultKind
    target: int = 0
    lasts_s: float = 0.0
    amount: float = 0.0


class Behaviour(StrEnum):
    """What the program of a job does."""

    GOOD = "good"
    EXITS_1 = "exits_1"
    LEAVES_EARLY = "leaves_early"  # exits with 0 before its last step
    IGNORES_LEASE = "ignores_lease"
    FORGES = "forges"  # reports checkpoints that do not exist, steps that were not done, and garbage
    DELETES_FOLDER = "deletes_folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A job as it really is. `rates`: steps per second of its gang, of an elastic job of each worker alone.

    Without `steps` it is an interactive session of `longest_s` seconds, or a service of `replicas`: it goes on until it
    is ended. `plans`: the names of its execution plans, and how many times as fast it is under each; 0: it fails at its
    start. `claim`: what its user states of its speed. `reserved_after_s`: a session is reserved from so long after its
    user has asked for it the first time.
    """

    kind: str
    size: int
    steps: int
    rates: Mapping[AcceleratorType, float]
    checkpoint_every_s: float
    behaviour: Behaviour = Behaviour.GOOD
    claim: float | None = None  # factor by which the stated rates are wrong; None: nothing is stated
    tier: str = "default"
    preemptible: bool = True
    retries: int = 0
    after: int | None = None  # the number of a job that must have completed first
    sizes: tuple[int, ...] = ()  # of an elastic job
    plans: Mapping[str, float] = field(default_factory=dict)
    longest_s: float | None = None
    replicas: int = 0
    accelerator_memory_bytes: int = 0  # that it states, of MEMORY_BYTES
    accelerator_share: float = 1.0  # of a session
    reserved_after_s: float | None = None

    def steps_per_s(self, accelerator_type: AcceleratorType, workers: int, plan: str) -> float:
        """Return how fast a gang of so many workers is under the plan; 0: it fails at its start."""
        rate = self.rates[accelerator_type] * (workers**SCALING if self.sizes else 1.0)
        return rate * self.plans.get(plan, 1.0)

    @property
    def slowest_s(self) -> float:
        """Return how long it takes alone in the worst case."""
        factors = [factor for factor in self.plans.values() if factor] or [1.0]
        return self.longest_s or self.steps / (min(self.rates.values()) * min(factors))


class Request(StrEnum):
    """What clients and operators ask for."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    EDIT = "edit"
    TIER = "tier"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    RESOURCES = "resources"
    POLICY = "policy"  # of COMPOSITIONS that at `target`
    BUDGET = "budget"  # tier gold may use `amount` accelerator hours a month
    LIMITS = "limits"  # tier gold gets at most the part `amount` of the cluster, and half of that for sure
    PIN = "pin"  # the autopilot keeps that at `target`; at 0: it follows its own decisions
    DECISION = "decision"  # the autopilot has decided for that at `target`
    REPLICAS = "replicas"  # another number of them, `amount`, of a service
    VERSION = "version"  # another program of a service
    EXTEND = "extend"  # a session may last `amount` seconds


OF_ROUNDS = (Request.POLICY, Request.PIN, Request.DECISION)  # those that put one of COMPOSITIONS in force


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request: `target` is a job or a node by its number."""

    at_s: float
    kind: Request
    target: int = 0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node of the cluster: its slots, how fast its clock goes, and its region, if there are any."""

    accelerator_type: AcceleratorType
    slots: int
    clock_rate: float = 1.0
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. Until `faults_until_s` faults may begin; afterwards all is well, and everything has to end.

    If its nodes are in regions, each of these is a cluster of its own, and with `shares_disk` all have one disk for
    checkpoints.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    programs: tuple[Program, ...]
    requests: tuple[ClientRequest, ...]
    faults: tuple[Fault, ...] = ()
    faults_until_s: float = 100.0
    processes: int = 2
    policy: str = "equal_share"
    is_durable: bool = False  # SQLite on a file in place of the store in memory
    shares_folder: bool = True  # the processes have one state folder
    process_rates: tuple[float, ...] = (1.0, 1.0)
    tiers: Mapping[str, float] = field(default_factory=dict)  # name -> weight
    shares_disk: bool = True
    leave_after_s: float = 2 * ROUND_S  # jobs may leave a region once no node of it could be used for so long
    settings: Mapping[str, bool | float | str] = field(default_factory=dict)  # of the service, where they are others

    @property
    def regions(self) -> tuple[str, ...]:
        """Return the regions of the nodes, sorted; one, "", if there are none."""
        return tuple(sorted({node.region for node in self.nodes}))

    def name_of(self, node: int) -> str:
        """Return what the service calls a node."""
        region = self.nodes[node].region
        return outer(f"node-{node}", region) if region else f"node-{node}"
