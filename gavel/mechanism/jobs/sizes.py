"""The size and the execution plan that a job's gang has. Everything else reads them as `spec.scale_factor`, `spec.kind`
and `spec.plan`.
"""

from collections.abc import Mapping

from gavel.types import AcceleratorType, AllocationProblem, Job, JobId, JobState, in_plan, in_size
from gavel.types.copying import changed


def resized(job: Job, size: int) -> Job:
    """Return the job with its size set; the same object for a rigid job, and where nothing changes.

    The time that it has held workers is turned into time at the new size, so that it has held the same worker seconds.
    A plan that does not hold at the size gives way to the first that does.
    """
    if not job.spec.is_elastic or job.size == size:
        return job
    before = job.spec.scale_factor
    after = changed(
        job,
        size=size,
        spec=in_size(job.spec, size),
        received_s=_at_size(job.received_s, before, size),
        shared_s=_at_size(job.shared_s, before, size),
    )
    return _with_plan_that_holds(after)


def _with_plan_that_holds(job: Job) -> Job:
    plan, size = job.spec.plan_in_force, job.spec.scale_factor
    first = next((each.name for each in job.spec.plans if size in each.sizes), None)
    return job if plan is None or size in plan.sizes or first is None else under_plan(job, first)


def under_plan(job: Job, plan: str) -> Job:
    """Return the job with the execution plan of this name in force; the same object where nothing changes."""
    if not job.spec.plans or job.plan == plan:
        return job
    return changed(job, plan=plan, spec=in_plan(job.spec, plan))


def variants_of(job: Job) -> list[Job]:
    """Return the job in each of its sizes, under each of its plans that hold there, in their order."""
    sized = [resized(job, size) for size in job.spec.possible_sizes]
    if not job.spec.plans:
        return sized
    return [
        changed(each, spec=in_plan(each.spec, plan.name))
        for each in sized
        for plan in job.spec.plans
        if each.spec.scale_factor in plan.sizes
    ]


def sizes_taken(elastic: Mapping[JobId, Job], problem: AllocationProblem) -> list[Job]:
    """Return those of the elastic jobs that wait and have another size in the round of this problem, in that size."""
    waiting = {job_id: job for job_id, job in elastic.items() if job.state is JobState.QUEUED}
    if not waiting:
        return []
    sizes = dict(zip(problem.job_ids, problem.scale_factor.tolist(), strict=True))
    return [resized(job, sizes[job_id]) for job_id, job in waiting.items() if sizes.get(job_id, job.size) != job.size]


def _at_size(seconds: Mapping[AcceleratorType, float], before: int, after: int) -> Mapping[AcceleratorType, float]:
    return seconds if before == after else {name: held_s * before / after for name, held_s in seconds.items()}
