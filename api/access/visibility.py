"""Which jobs a caller may know by name. Of other jobs it sees the workers that they hold, but not their names."""

from collections.abc import Collection, Iterable

from api.access.auth import may_see
from api.services import Services
from gavel.ports import JobFilter
from gavel.types import Identity, Job, JobId, Scope

IDS_A_PAGE = 200


def seen_ids(services: Services, caller: Identity, ids: Iterable[JobId]) -> Collection[JobId]:
    """Return those of the ids that the caller may see; all of them for an operator."""
    wanted = set(ids)
    if caller.scope is Scope.OPERATOR:
        return wanted
    return {job_id for job_id, job in jobs_with(services, wanted).items() if may_see(caller, job)}


def jobs_with(services: Services, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Return the jobs with these ids: unfinished ones from the snapshot, ended ones from the database."""
    live = services.present.get().snapshot.jobs
    jobs = {job_id: live[job_id] for job_id in ids if job_id in live}
    ended = sorted(set(ids) - jobs.keys())
    for start in range(0, len(ended), IDS_A_PAGE):
        part = tuple(ended[start : start + IDS_A_PAGE])
        jobs |= {job.id: job for job in services.store.jobs(JobFilter(ids=part), limit=IDS_A_PAGE).jobs}
    return jobs
