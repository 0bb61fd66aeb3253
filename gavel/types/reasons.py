"""Why a job is in its state: each reason with a sentence that says what it means and one that says what helps."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Why a job is in its state, or why it was refused."""

    PENDING_EVALUATION = "PendingEvaluation"
    BEHIND_FAIR_SHARE = "BehindFairShare"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    LAUNCHED = "Launched"
    RUNNING = "Running"
    PROFILING = "Profiling"
    PREEMPTED = "Preempted"
    RETRYING = "Retrying"
    LOST = "Lost"
    PAUSED = "Paused"
    MOVING = "Moving"
    WAITING_FOR_JOBS = "WaitingForJobs"
    QUOTA_EXCEEDED = "QuotaExceeded"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    LOW_DISK = "LowDisk"
    DISK_BUDGET_EXCEEDED = "DiskBudgetExceeded"
    NON_PREEMPTIBLE_LIMIT = "NonPreemptibleLimit"
    RESERVED = "Reserved"
    RESERVATION_MISSED = "ReservationMissed"
    SERVING = "Serving"
    SPREAD = "Spread"
    REGION_AWAY = "RegionAway"
    TOO_MANY_JOBS = "TooManyJobs"
    NO_MATCHING_TYPE = "NoMatchingType"
    MISCONFIGURED = "Misconfigured"
    CANCELLING = "Cancelling"
    CANCELLED = "Cancelled"
    COMPLETED = "Completed"
    PROGRAM_FAILED = "ProgramFailed"
    PROGRAM_NOT_STARTED = "ProgramNotStarted"
    STEPS_MISSING = "StepsMissing"
    NO_PROGRESS = "NoProgress"
    DOES_NOT_FIT = "DoesNotFit"
    LOST_TOO_OFTEN = "LostTooOften"
    DEPENDENCY_FAILED = "DependencyFailed"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Keep the text of a reason that only a newer version has, so that it can be read and is not lost."""
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        return unknown

    @property
    def sentence(self) -> str:
        """Return a sentence that says what the reason means."""
        return EXPLAINED.get(self, UNKNOWN).sentence

    def fix(self, job_id: str = "JOB") -> str:
        """Return what helps, with the commands for the job of that ID; empty if nothing needs to be done."""
        return EXPLAINED.get(self, UNKNOWN).fix.replace("JOB", job_id)


@dataclass(frozen=True, slots=True)
class Explained:
    """What a reason means, and what helps; an empty fix: nothing needs to be done."""

    sentence: str
    fix: str = ""


UNKNOWN = Explained("A newer version of Gavel gave this reason.", "Read the message of the job.")

EXPLAINED: Mapping[Reason, Explained] = {
    Reason.PENDING_EVALUATION: Explained(
        "No round has taken the job into account yet, or its gang is about to start.", "Wait for the next round."
    ),
    Reason.BEHIND_FAIR_SHARE: Explained(
        "The allocation gives the job time that it has not received yet.",
        "Wait for its turn. A higher priority (`gavel job set JOB --priority`) or a higher weight of its tier helps.",
    ),
    Reason.WAITING_FOR_CAPACITY: Explained(
        "The allocation gives the job no time now, because other jobs come first.",
        "Wait until other jobs end. A higher priority (`gavel job set JOB --priority`), a higher weight of its tier, or"
        " more workers help.",
    ),
    Reason.LAUNCHED: Explained("The gang of the job was sent to its workers."),
    Reason.RUNNING: Explained("The gang of the job runs."),
    Reason.PROFILING: Explained("The job is measured on an accelerator type on which nobody knows its speed."),
    Reason.PREEMPTED: Explained(
        "The lease of the job has ended, and the job waits for a later round.",
        "Wait. The job continues from its last checkpoint.",
    ),
    Reason.RETRYING: Explained(
        "The program of the job failed and is started again.", "Read in `gavel job logs JOB` why it failed."
    ),
    Reason.LOST: Explained(
        "The gang of the job was lost, for example because its node failed.",
        "Wait. The job starts again from its last checkpoint.",
    ),
    Reason.PAUSED: Explained("The job is paused.", "Run `gavel job resume JOB`."),
    Reason.MOVING: Explained(
        "The checkpoint and the data of the job are copied to another region, where it goes on.",
        "Wait until they are there. `--region` keeps a job in the regions that it names.",
    ),
    Reason.WAITING_FOR_JOBS: Explained(
        "The job starts after other jobs that have not completed yet.", "Wait until those jobs have completed."
    ),
    Reason.QUOTA_EXCEEDED: Explained(
        "The tier of the job has used its accelerator hours or its budget of this month.",
        "Wait for the next month, or ask an operator for a higher limit of the tier.",
    ),
    Reason.EXCEEDS_MAX_QUOTA: Explained(
        "The job needs more accelerator hours than its tier has in a whole month.",
        "Submit it with fewer steps or in another tier, or ask an operator for a higher limit of the tier.",
    ),
    Reason.LOW_DISK: Explained(
        "The service has too little free disk to start another gang; those that run go on.",
        "Purge ended jobs (`gavel job purge`), or ask an operator for more disk or a smaller disk_reserve_bytes.",
    ),
    Reason.DISK_BUDGET_EXCEEDED: Explained(
        "The jobs of the user fill more disk than they may, so that no other one starts.",
        "Purge ended jobs (`gavel job purge`), or ask an operator for a larger user_disk_bytes.",
    ),
    Reason.NON_PREEMPTIBLE_LIMIT: Explained(
        "Jobs that may not be preempted hold as many workers as the tier allows them, or as caps and guarantees leave.",
        "Wait until one of them ends, or submit the job without `--no-preemptible`; an operator may raise the limit.",
    ),
    Reason.RESERVED: Explained(
        "The session has a reservation, and starts at its time or as soon after it as there is room.",
        "Wait. `gavel job cancel JOB` gives the reservation back.",
    ),
    Reason.RESERVATION_MISSED: Explained(
        "The time that was reserved for the session was over before it could start.",
        "Reserve another time (`--at`), or submit the session without one.",
    ),
    Reason.SERVING: Explained("The job is a service: its replicas run, not the job itself."),
    Reason.SPREAD: Explained(
        "The replica may not be where another replica of its service is, and no other node can have it now.",
        "Wait until a node is free, add nodes, or submit the service without `spread_hard`.",
    ),
    Reason.REGION_AWAY: Explained(
        "No node can be used now of the regions that the job may be in.",
        "Wait. The page of nodes says which regions cannot be reached, and why.",
    ),
    Reason.TOO_MANY_JOBS: Explained(
        "The user or the tier has as many unfinished jobs as it may have.",
        "Wait until some jobs have ended, cancel some, use another tier, or ask an operator for a higher limit.",
    ),
    Reason.NO_MATCHING_TYPE: Explained(
        "No accelerator type has as many workers as the gang of the job needs.",
        "Submit it with a smaller scale factor, or ask an operator for more workers of one accelerator type.",
    ),
    Reason.MISCONFIGURED: Explained(
        "The tier of the job is gone, or no node has what its gang needs: accelerators, labels, cores and memory.",
        "Submit it in another tier, or with smaller needs.",
    ),
    Reason.CANCELLING: Explained("The job was cancelled and ends when its gang has stopped."),
    Reason.CANCELLED: Explained("The job was cancelled."),
    Reason.COMPLETED: Explained("The job has done all its steps."),
    Reason.PROGRAM_FAILED: Explained(
        "The program of the job ended with an error.",
        "Read `gavel job logs JOB`, correct the program, and submit it again.",
    ),
    Reason.PROGRAM_NOT_STARTED: Explained(
        "The program of the job could not be started.",
        "Correct what is named (the program, --python, --setup, --data, --secret or --image), and submit it again.",
    ),
    Reason.STEPS_MISSING: Explained(
        "The program of the job ended without an error before all steps were done.",
        "Let the program run its loop to the end, or call `job.finish()` before it leaves it; then submit it again.",
    ),
    Reason.DOES_NOT_FIT: Explained(
        "The job does not fit the accelerator type that it ran on; if it fits no other, it has failed.",
        "Submit it with less memory or a larger scale factor. `gavel infeasible list` shows what was seen,"
        " `gavel infeasible clear ID` lets it try again.",
    ),
    Reason.NO_PROGRESS: Explained(
        "The leases of the job end before it has saved a checkpoint, and none can be longer; or its program runs"
        " without reporting a step.",
        "Pass `checkpoint` and `restore` to `job.steps`, or shorten the start of the program. An operator can raise"
        " start_limit_s or round_duration_s.",
    ),
    Reason.LOST_TOO_OFTEN: Explained(
        "Gangs of the job were lost several times in a row, without a new checkpoint in between.",
        "Find out whether the program harms its nodes, for example by too much memory, and submit it again.",
    ),
    Reason.DEPENDENCY_FAILED: Explained(
        "A job that had to complete first has failed or was cancelled.", "Submit that job again, then this one."
    ),
}
