"""What can happen to a job: the inputs of its state machine. Each carries its own time."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from gavel.types import AcceleratorType, GangExit, Lease, Reason, Report, WorkerId


class EventKind(StrEnum):
    """Names of the arrows of the lifecycle table."""

    LAUNCHED = "gang.launched"
    PREEMPTED = "gang.preempted"
    LOST = "gang.lost"
    RETRIED = "gang.failed"
    INFEASIBLE = "gang.infeasible"
    FINISHED = "job.completed"
    BROKE = "job.failed"
    CANCELLED = "job.cancelled"
    REFUSED = "job.refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A gang was sent to the backend under a new generation."""

    at_s: float
    generation: int
    round_index: int
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    plan: str = ""

    kind = EventKind.LAUNCHED

    @classmethod
    def of(cls, lease: Lease, at_s: float) -> Self:
        """Return the event of a gang that is launched under this lease."""
        return cls(
            at_s=at_s,
            generation=lease.generation,
            round_index=lease.round_index,
            accelerator_type=lease.accelerator_type,
            worker_ids=lease.worker_ids,
            plan=lease.plan,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A gang has ended; `kind`: what that means for its job; `retry_at_s`: the job does not start again before.

    `held_s`: the seconds from the start of its programs to their end, 0 if they were not started. `checkpoint_left`: as
    in `GangSeen`.
    """

    at_s: float
    generation: int
    kind: EventKind
    reason: Reason
    message: str
    exit: GangExit
    retry_at_s: float = 0.0
    held_s: float = 0.0
    checkpoint_left: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissed:
    """A job that holds no gang ends: cancelled, or refused because it can never run."""

    at_s: float
    kind: EventKind
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Reports of the gang of `generation`. They change the progress of the job, not its state.

    `started_at_s`: when the gang's programs started, None if that is not known.
    """

    at_s: float
    generation: int
    reports: tuple[Report, ...]
    started_at_s: float | None = None


Event = Launched | Ended | Dismissed
