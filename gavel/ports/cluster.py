"""The port of what runs gangs: it takes instructions and gives observations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gavel.types import (
    AcceleratorType,
    EphemeralResource,
    JobId,
    Observation,
    WorkerId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResources:
    """Create, resize or delete (capacity 0) ephemeral resources, all in one transaction."""

    resources: tuple[EphemeralResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang:
    """Submit a gang's tasks; each requires its gang's ephemeral resource and its worker, and waits for both.

    Refused as stale if a gang of the job with the same or a newer generation is known: launching twice is harmless.
    """

    job_id: JobId
    generation: int
    user: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]  # rank i runs on worker_ids[i]
    resource: str  # the name each task requires one unit of
    lease_expires_at_s: float
    start_step: int
    total_steps: int | None  # None: the program says it in its first report
    checkpoint: str | None  # name of the accepted checkpoint to restore
    from_checkpoint: str = ""  # of another job, JOB/GENERATION-STEP, to restore where the job has none of its own
    job_token: str = ""  # bearer token of scope JOB, for applications that steer their own resources
    workdir: str = ""  # where the ranks run; "": in the job's own folder
    code: str = ""  # digest of the code version that the gang runs in a copy of; "": none
    python: str = ""  # path of the interpreter; "": one without packages, for a program of the catalogue the service's
    secrets: tuple[str, ...] = ()  # names of the user's secrets, each a variable of the ranks
    image: str = ""  # container image that the ranks run in; "": none
    data: Mapping[str, str] = field(default_factory=dict)  # inputs by name: a path of the node, or a URL
    setup: str = ""  # shell line that makes the job's environment, once for each content and node; "": none
    cpu_cores: int = 0  # that each rank may use; 0: any
    memory_bytes: int = 0  # of the node that each rank may use; 0: any
    serving: str = ""  # port and checks of a replica of a service, as backends/health.py reads them; "": it is none
    tier: str = ""  # of the job
    time_to_loss_s: float = 0.0  # mean time until a gang of its size is lost; 0: nobody knows
    shares_with: JobId | None = None  # the job of a packed pair whose gang takes the other half of each worker


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareGang:
    """Let the programs of a gang that will be launched soon load their libraries, where there is memory for it.

    A hint: the gang is not there before its launch, holds no worker, and nothing is left if it is not launched until
    `until_s`. A backend may ignore it.
    """

    gang: LaunchGang
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    """Move a gang's lease end, in place; from now on it may share its workers with another job's gang."""

    job_id: JobId
    generation: int
    expires_at_s: float
    shares_with: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGang:
    """Ask a gang to checkpoint and stop now; raises the fence to generation + 1."""

    job_id: JobId
    generation: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    """Ask a gang to write a checkpoint after its step and to go on; once for each `asked_at_s`, the latest counts."""

    job_id: JobId
    generation: int
    asked_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetGang:
    """Drop what is kept of a gang, except its log: its end is committed."""

    job_id: JobId
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCheckpoint:
    """Mark a checkpoint as current: the store accepted it, and older ones of the job may be deleted."""

    job_id: JobId
    checkpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonNode:
    """Have the cluster itself keep everybody's new work from a node, or let it come again.

    Given only for nodes of which the observation says whether the cluster does (`Observation.cordons`).
    """

    node: str
    is_cordoned: bool


Instruction = (
    SetResources
    | LaunchGang
    | ExtendLease
    | StopGang
    | SaveCheckpoint
    | ForgetGang
    | KeepCheckpoint
    | PrepareGang
    | CordonNode
)


class ClusterBackend(Protocol):
    """A cluster that obeys instructions. Every call is idempotent and refuses older generations."""

    def observe(self) -> Observation:
        """Return one consistent observation of the cluster. Raises BackendUnavailable."""

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the instructions in order; a stale one is ignored. Raises BackendUnavailable if none could be."""

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Return log bytes from `offset` (bytes since the job's first line) and the offset to ask for next."""

    def close(self) -> None:
        """Disconnect from the cluster; gangs go on to the end of their leases."""
