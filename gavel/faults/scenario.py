"""What one run consists of: the cluster, the jobs, what clients ask for, and the faults. Drawn from a seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gavel.types import AcceleratorType


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


CRASHES = (
    FaultKind.CRASH,
    FaultKind.CRASH_BEFORE_COMMIT,
    FaultKind.CRASH_AFTER_COMMIT,
    FaultKind.CRASH_IN_EXCHANGE,
)


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
    """A job as it really is. `work_s`: seconds of training on the fastest type; `claim`: what its user states of it."""

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
    POLICY = "policy"  # another one, or that of the settings if `target` is 0
    BUDGET = "budget"  # tier gold may use `amount` accelerator hours a month


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request: `target` is a job or a node by its number."""

    at_s: float
    kind: Request
    target: int = 0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node of the cluster: its slots, and how fast its clock goes."""

    accelerator_type: AcceleratorType
    slots: int
    clock_rate: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. Until `faults_until_s` faults may begin; afterwards all is well, and everything has to end."""

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
