"""Jobs that wait for disk. Those that run go on: they would need more of it to be started a second time."""

from collections.abc import Iterable

from gavel.types import DiskState, Job, JobId, JobState, Reason


def held(jobs: Iterable[Job], disk: DiskState) -> dict[JobId, tuple[Reason, str]]:
    """Return the queued jobs that may not start for lack of disk, with reason and message."""
    if not disk.low and not disk.over_budget:
        return {}
    return {job.id: why for job in jobs if job.state is JobState.QUEUED and (why := _why(job, disk)) is not None}


def _why(job: Job, disk: DiskState) -> tuple[Reason, str] | None:
    if disk.low:
        return Reason.LOW_DISK, disk.low
    message = disk.over_budget.get(job.spec.user)
    return None if message is None else (Reason.DISK_BUDGET_EXCEEDED, message)
