"""Why a job does not run, when it will, and how good such predictions were."""

from fastapi import APIRouter

from api.auth import AnyCaller, UserOrOperator, visible_job
from api.errors import documented
from api.forecasts import calibration_view, explain_view
from api.routes.parameters import JobIdPath
from api.schemas.explain import CalibrationView, ExplainView
from api.services import ServicesDep
from gavel.mechanism.explaining import State, explain

router = APIRouter(prefix="/v1", tags=["why and what if"])


@router.get("/jobs/{job_id}/explain", operation_id="explain_job", responses=documented(401, 403, 404, 422, 503))
def explain_job(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> ExplainView:
    """Why the job does not run, which accelerator type it waits for, what would help, and when it starts and ends."""
    job, known = visible_job(services, caller, job_id), services.store.snapshot()
    record = known.rounds[-1] if known.rounds else None
    state = State(
        jobs=known.jobs,
        tiers=known.tiers,
        cluster=services.store.cluster(),
        record=record,
        usage=known.usage,
        now_s=services.clock.now_s(),
    )
    return explain_view(job, explain(job, state), record, services.forecasts, services.store)


@router.get("/explain/calibration", operation_id="get_calibration", responses=documented(401, 403, 503))
def get_calibration(caller: UserOrOperator, services: ServicesDep) -> CalibrationView:
    """How many of the last 500 completed jobs ended, and began, in the interval that was predicted first."""
    return calibration_view(services.store.predictions(limit=500))
