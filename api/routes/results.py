"""What jobs leave: the curves of the metrics that they report."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access.auth import AnyCaller, visible_job
from api.http.errors import documented
from api.routes.parameters import JobIdPath
from api.schemas.results import JobMetricsView
from api.services import ServicesDep
from api.views.metrics import metrics_view

router = APIRouter(prefix="/v1/jobs", tags=["results"])


@router.get("/{job_id}/metrics", operation_id="get_metrics", responses=documented(401, 403, 404, 422, 503))
def get_metrics(
    job_id: JobIdPath,
    caller: AnyCaller,
    services: ServicesDep,
    points: Annotated[int, Query(ge=2, le=1001, description="Most points in the answer, evenly chosen.")] = 500,
) -> JobMetricsView:
    """All metrics that the job has reported, over its steps and leases.

    Up to 1,000 steps every report is kept, after that one for each 2 steps, from 2,000 steps on one for each 4, and so
    on; the first and the newest always.
    """
    visible_job(services, caller, job_id)
    return metrics_view(services.store.metric_points(job_id), points)
