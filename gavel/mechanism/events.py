"""What can happen to a job: the inputs of its state machine. Each carries its own time."""

from dataclasses import dataclass
from enum import StrEnum

from gavel.types import AcceleratorType, GangExit, Report, WorkerId


class EventKind(StrEnum):
    """Names of the arrows of the lifecycle table."""

    LAUNCHED = "gang.launched"
    PREEMPTED = "gang.preempted"
    LOST = "gang.lost"
    RETRIED = "gang.failed"
    FINISHED = "job.completed"
    BROKE = "job.failed"
    CANCELLED = "job.cancelled"
    REFUSED = "job.refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A gang was sent to the backend under a new token."""

    at_s: float
    token: int
    round_index: int
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]

    kind = EventKind.LAUNCHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A gang is over; `kind` says what that means for its job, `retry_at_s` until when the job pauses at least."""

    at_s: float
    token: int
    kind: EventKind
    reason: str
    message: str
    exit: GangExit
    retry_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissed:
    """A job that holds no gang ends: cancelled, or refused because it can never run."""

    at_s: float
    kind: EventKind
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Reports of the gang that holds `token`; no arrow of the table, they only move progress forward."""

    at_s: float
    token: int
    reports: tuple[Report, ...]


Event = Launched | Ended | Dismissed
