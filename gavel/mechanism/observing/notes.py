"""What the runtime of a job notes about its start, for the job's history."""

from collections.abc import Iterator

from gavel.ports import JobEvent
from gavel.types import GangSeen, Job
from gavel.types.checkpoints import CHECKPOINT_UNREADABLE


def notes_of(job: Job, gang: GangSeen, now_s: float) -> Iterator[JobEvent]:
    """Yield an event for each new report with a note: the accepted checkpoint could not be loaded."""
    for report in gang.reports:
        if report.note and report.sequence > job.report_sequence:
            yield JobEvent(job_id=job.id, at_s=now_s, kind=CHECKPOINT_UNREADABLE, message=report.note)
