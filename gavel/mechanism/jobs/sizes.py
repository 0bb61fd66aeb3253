"""The size of an elastic job: how many workers its gang has. Everything else reads it as `spec.scale_factor`."""

from collections.abc import Mapping

from gavel.types import AcceleratorType, AllocationProblem, Job, JobId, JobState, in_size
from gavel.types.copying import changed


def resized(job: Job, size: int) -> Job:
    """Return the job with its size set; the same object for a rigid job, and where nothing changes.

    The time that it has held workers is turned into time at the new size, so that it has held the same worker seconds.
    """
    if not job.spec.is_elastic or job.size == size:
        return job
    before = job.spec.scale_factor
    return changed(
        job,
        size=size,
        spec=in_size(job.spec, size),
        received_s=_at_size(job.received_s, before, size),
        shared_s=_at_size(job.shared_s, before, size),
    )


def sizes_taken(elastic: Mapping[JobId, Job], problem: AllocationProblem) -> list[Job]:
    """Return those of the elastic jobs that wait and have another size in the round of this problem, in that size."""
    waiting = {job_id: job for job_id, job in elastic.items() if job.state is JobState.QUEUED}
    if not waiting:
        return []
    sizes = dict(zip(problem.job_ids, problem.scale_factor.tolist(), strict=True))
    return [resized(job, sizes[job_id]) for job_id, job in waiting.items() if sizes.get(job_id, job.size) != job.size]


def _at_size(seconds: Mapping[AcceleratorType, float], before: int, after: int) -> Mapping[AcceleratorType, float]:
    return seconds if before == after else {name: held_s * before / after for name, held_s in seconds.items()}
