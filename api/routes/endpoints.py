"""The endpoints of an inference service: where its replicas that are ready are reached."""

from fastapi import APIRouter

from api.access.auth import AnyCaller, visible_job
from api.http.errors import documented, problem
from api.routes.parameters import JobIdPath
from api.schemas import EndpointList, TargetGroup
from api.services import Services, ServicesDep
from api.views.inference import endpoint_list, target_groups
from gavel.types import Identity, Job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("/{job_id}/endpoints", operation_id="list_endpoints", responses=documented(401, 403, 404, 409, 422, 503))
def list_endpoints(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> EndpointList:
    """The replicas that are ready and do not leave. Send requests to these only. 409 for a job that is no service."""
    return endpoint_list(_service(job_id, caller, services), services.store.snapshot().jobs.values())


@router.get(
    "/{job_id}/endpoints/prometheus",
    operation_id="list_scrape_targets",
    responses=documented(401, 403, 404, 409, 422, 503),
)
def list_scrape_targets(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> list[TargetGroup]:
    """The same in the form of Prometheus' HTTP service discovery (http_sd_configs). 409 as for the endpoints."""
    service = _service(job_id, caller, services)
    return target_groups(service, endpoint_list(service, services.store.snapshot().jobs.values()))


def _service(job_id: str, caller: Identity, services: Services) -> Job:
    job = visible_job(services, caller, job_id)
    if job.spec.service is None:
        raise problem(409, f"job {job_id} is no service, so it has no endpoints; submit one with mode: service")
    return job
