"""Whose jobs a caller may know by name: of others it sees that they hold workers, and where, but not which they are."""

from collections.abc import Collection, Iterable

from api.auth import may_see
from api.services import Services
from gavel.ports import JobFilter
from gavel.types import Identity, Job, JobId, Scope

IDS_A_PAGE = 200


def seen_ids(services: Services, caller: Identity, ids: Iterable[JobId]) -> Collection[JobId]:
    """Those of the ids that the caller may see; an operator: all."""
    wanted = set(ids)
    if caller.scope is Scope.OPERATOR:
        return wanted
    return {job_id for job_id, job in jobs_with(services, wanted).items() if may_see(caller, job)}


def jobs_with(services: Services, ids: Collection[JobId]) -> dict[JobId, Job]:
    """The jobs with these ids: unfinished ones from the snapshot, ended ones from their rows."""
    live = services.store.snapshot().jobs
    found = {job_id: live[job_id] for job_id in ids if job_id in live}
    ended = sorted(set(ids) - found.keys())
    for start in range(0, len(ended), IDS_A_PAGE):
        part = tuple(ended[start : start + IDS_A_PAGE])
        found |= {job.id: job for job in services.store.jobs(JobFilter(ids=part), limit=IDS_A_PAGE).jobs}
    return found
