"""Reports of running gangs, and observations of gangs and clusters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gavel.types.cluster import AcceleratorType, Cluster, WorkerId
from gavel.types.jobs import JobId
from gavel.types.regions import LinkCopies
from gavel.types.rounds import EphemeralResource
from gavel.types.services import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The steps of a gang over wall seconds, in steps of its job's mean size.

    0 steps: it has done none in that time, colocated with a partner. `is_representative`: every core it used was as
    busy as it can be by design. `accelerator_memory_bytes` is the most that was seen in use on one accelerator
    meanwhile, partner included; 0: not known.
    """

    job_id: JobId
    generation: int
    sequence: int
    user: str
    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    steps: float
    seconds: float
    partner: str | None = None
    placement: str = "consolidated"
    is_representative: bool = True
    stated_steps_per_s: float | None = None  # the user's claim
    accelerator_memory_bytes: int = 0


class ReportKind(StrEnum):
    """The kinds of report that a job's runtime sends to the service."""

    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One numbered report of a gang. `steps` and `seconds` are the training done since the report before it.

    The first report has `startup_s` and `restore_s`, that of a checkpoint `checkpoint_s` (gavel/types/startup.py), its
    size, the seconds for which the training stood still, and those until the next one for safety, with the mean time to
    the loss of a gang that they follow from; None in others, and from a runtime that does not measure them.
    `accelerator_memory_bytes` is the most that the backend saw in use on one accelerator of the gang, of all processes,
    since the reports before; 0: not known. `work` is the units of work of those steps, 0 if the program does not say
    them; `phases_s` the seconds since the report before in each phase that is no training. `total_steps` is how many
    steps the program says the job has, where its user did not.
    """

    sequence: int
    kind: ReportKind
    step: int
    steps: int = 0
    seconds: float = 0.0
    checkpoint: str | None = None
    total_steps: int | None = None
    work: float = 0.0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # which checkpoint could not be loaded
    restored: str = ""  # the one before it, with which the gang begins instead
    is_representative: bool = True
    accelerator_memory_bytes: int = 0
    startup_s: float | None = None
    restore_s: float | None = None
    checkpoint_s: float | None = None
    checkpoint_bytes: int | None = None
    checkpoint_every_s: float | None = None
    checkpoint_cost_s: float | None = None
    time_to_loss_s: float | None = None


class GangState(StrEnum):
    """The state of a gang on its cluster."""

    WAITING = "WAITING"  # its tasks wait for resources
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class GangOutcome(StrEnum):
    """Why a gang ended."""

    EXITED = "exited"  # its program ended by itself, see the exit code
    PREEMPTED = "preempted"  # stopped at its lease's end, or by a stop, after saying so or by a signal
    NOT_STARTED = "not_started"  # its program could not be started
    LOST = "lost"  # its supervisor or node is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class GangExit:
    """How a gang ended. `exit_code` is the first rank's that failed, negative for a signal, 0 if none failed.

    `ended_by` is why its supervisor had to end it, "lease" or "stop"; "" if it did not have to, or is gone itself.
    """

    outcome: GangOutcome
    exit_code: int = 0
    message: str = ""
    log_tail: str = ""
    ended_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSeen:
    """One gang as the backend observes it. `reports` are all those since the last observation.

    `endpoint` is the HOST:PORT of a replica of a service whose readiness check passes; "": it does not, or is none.
    `load`: of a replica, if it counts its requests; None: nothing is known of them. `checkpoint_left`: the checkpoint
    that it was to begin with is gone, and this older one is left, "" if none is; None: nobody missed it. `is_silent`: a
    lost gang of which a node has not told that it ended: where only the network is cut, it runs on.
    """

    job_id: JobId
    generation: int
    state: GangState
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    started_at_s: float | None = None
    ended_at_s: float | None = None
    exit: GangExit | None = None
    reports: tuple[Report, ...] = ()
    waiting_for: str = ""
    endpoint: str = ""
    load: Load | None = None
    checkpoint_left: str | None = None
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One consistent observation of the cluster."""

    observed_at_s: float
    cluster: Cluster
    gangs: tuple[GangSeen, ...] = ()
    resources: tuple[EphemeralResource, ...] = ()
    held: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (owner/name, node) -> units that somebody holds
    link_copies: tuple[LinkCopies, ...] = ()  # of checkpoints from region to region, that the backend has made
    cordons: Mapping[str, bool] = field(default_factory=dict)  # node -> whether it is cordoned, where a backend cordons
