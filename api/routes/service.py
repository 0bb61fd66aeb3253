"""The service itself: alive, ready, metrics, and the description of the API."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.access.auth import PUBLIC, OperatorOrViewer
from api.http.errors import documented, problem
from api.http.reference import page
from api.schemas import Health
from api.services import ServicesDep
from gavel.backends.disk import low_disk

router = APIRouter(tags=["service"])

PLAIN: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/healthz", operation_id="healthz", dependencies=[PUBLIC], response_model_exclude_defaults=True)
async def healthz(services: ServicesDep) -> Health:
    """The process answers; with a note if the scheduler process has ended lately."""
    return Health(status="ok", note=services.scheduler_trouble())


@router.get(
    "/readyz",
    operation_id="readyz",
    dependencies=[PUBLIC],
    response_model_exclude_defaults=True,
    responses=documented(503),
)
def readyz(services: ServicesDep) -> Health:
    """The store answers and the scheduler is alive. Otherwise 503 says which of them does not.

    A note says that no gang is started for lack of disk: restarting the service would not help.
    """
    services.store.tiers()
    if not services.is_scheduler_alive():
        raise problem(
            503, "the scheduler is not alive; jobs are accepted and wait, running gangs end with their leases"
        )
    return Health(status="ok", note=low_disk(services.settings))


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=PLAIN | documented(401, 403, 503))
def metrics(request: Request, caller: OperatorOrViewer) -> Response:
    """Prometheus metrics; needs a token of scope viewer or operator."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False, dependencies=[PUBLIC])
def openapi(request: Request) -> JSONResponse:
    """The OpenAPI 3.1 description."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, dependencies=[PUBLIC])
def docs(request: Request) -> HTMLResponse:
    """The API description as a page, rendered here: it loads nothing from other sites and runs no script."""
    return HTMLResponse(
        page(request.app.openapi()),
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
