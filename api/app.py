"""The REST application: put together here, served by whoever calls `create_app`."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry
from starlette.types import Scope

from api import errors
from api.dashboard import pages
from api.limits import BodyLimit
from api.live import LiveFeed
from api.metrics import StoreCollector
from api.rates import Rates
from api.recent import Recent
from api.requests import RequestLog
from api.routes import (
    audit,
    batches,
    explain,
    jobs,
    live,
    logs,
    nodes,
    operations,
    overview,
    policy,
    preview,
    replay,
    resources,
    scheduling,
    service,
    simulate,
    tiers,
    tokens,
)
from api.services import Services

__all__ = ["Services", "create_app"]

DESCRIPTION = (
    "Submit training jobs and see how they share a cluster of mixed accelerators. Send `Authorization: Bearer TOKEN`."
    " Errors are `application/problem+json` with a stable `type`."
)

PARTS = (
    jobs,
    batches,
    explain,
    audit,
    logs,
    live,
    tiers,
    tokens,
    nodes,
    operations,
    overview,
    policy,
    preview,
    simulate,
    replay,
    resources,
    scheduling,
    service,
    pages,
)


def create_app(services: Services, tracer_provider: TracerProvider | None = None) -> FastAPI:
    """The application over `services`: /v1, /healthz, /readyz, /metrics, /docs, and the dashboard at /.

    With a `tracer_provider` each request is a trace of OpenTelemetry.
    """
    app = FastAPI(
        title="Gavel",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=_telemetry(tracer_provider),
    )
    app.state.services = services
    app.state.live = LiveFeed(services)
    app.state.recent = Recent(services)
    app.state.rates = Rates(services.settings.requests_per_user_per_s)
    app.state.registry = CollectorRegistry()
    app.state.registry.register(StoreCollector(services))
    app.add_middleware(BodyLimit, limit_bytes=services.settings.body_bytes)
    app.add_middleware(RequestLog, registry=app.state.registry, log_requests=services.settings.log_requests)
    errors.install(app)
    # Not included as routers: the paths are whole, and a request would be matched by each router, twice by its own.
    routes = [route for part in PARTS for route in part.router.routes]
    app.router.routes += routes
    app.state.paths = frozenset(route.path for route in routes)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _telemetry(tracer_provider: TracerProvider | None) -> TelemetryConfig:
    """Traces only: metrics are Prometheus', logs structlog's."""
    if tracer_provider is None:
        return {"tracing": False, "metrics": False, "logs": False}
    return {"tracer_provider": tracer_provider, "metrics": False, "logs": False, "exclude": _is_watched}


def _is_watched(scope: Scope) -> bool:
    """What monitors ask every few seconds."""
    return scope.get("path") in ("/healthz", "/readyz", "/metrics")


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, made once, with the schema of problem documents added."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema["components"]["schemas"]["Problem"] = dict(errors.PROBLEM_SCHEMA)
        app.openapi_schema = schema
    return app.openapi_schema
