"""Jobs that wait for disk. Those that run go on: they would need more of it to be started a second time.

They are asked for a checkpoint as soon as the disk is nearly full: the reserve has room for it, and later there may be
none.
"""

from collections.abc import Iterable, Iterator

from gavel.ports import SaveCheckpoint
from gavel.types import DiskState, GangSeen, GangState, Job, JobId, JobState, Reason


def held(jobs: Iterable[Job], disk: DiskState) -> dict[JobId, tuple[Reason, str]]:
    """Return the queued jobs that may not start for lack of disk, with reason and message."""
    if not disk.low and not disk.over_budget:
        return {}
    return {job.id: why for job in jobs if job.state is JobState.QUEUED and (why := _why(job, disk)) is not None}


def saves(gangs: Iterable[GangSeen], disk: DiskState) -> Iterator[SaveCheckpoint]:
    """Yield the request for a checkpoint of each running gang while the disk is nearly full, the same in each tick."""
    for gang in gangs if disk.low else ():
        if gang.state is GangState.RUNNING:
            yield SaveCheckpoint(job_id=gang.job_id, generation=gang.generation, asked_at_s=disk.low_since_s)


def _why(job: Job, disk: DiskState) -> tuple[Reason, str] | None:
    if disk.low:
        return Reason.LOW_DISK, disk.low
    message = disk.over_budget.get(job.spec.user)
    return None if message is None else (Reason.DISK_BUDGET_EXCEEDED, message)
