"""Purging: all that an ended job has left is deleted before its time."""

from fastapi import APIRouter

from api.access.auth import UserOrOperator, visible_job
from api.http.errors import documented, problem
from api.routes.parameters import JobIdPath
from api.schemas.results import PurgedView
from api.services import ServicesDep
from gavel.backends.leftovers import Leftovers

router = APIRouter(prefix="/v1/jobs", tags=["results"])


@router.post("/{job_id}/purge", operation_id="purge_job", responses=documented(401, 403, 404, 409, 422, 503))
def purge(job_id: JobIdPath, caller: UserOrOperator, services: ServicesDep) -> PurgedView:
    """Delete an ended job: checkpoints, outputs, log, work folder, history and the job itself. 409 while it lives.

    Copies of its checkpoints that unfinished jobs begin with stay until those have ended. What it used stays counted,
    and the audit log says who purged it.
    """
    job = visible_job(services, caller, job_id)
    if not job.state.is_terminal:
        raise problem(409, f"job {job_id} is {job.state}; cancel it, and purge it once it has ended")
    origins = {each.spec.from_checkpoint for each in services.store.snapshot().jobs.values()}
    freed_bytes = Leftovers(services.settings).delete(job_id, origins)  # first: of an unknown job nobody finds them
    services.store.purge_job(job_id, by=caller.user, now_s=services.clock.now_s())
    return PurgedView(id=job_id, freed_bytes=freed_bytes)
