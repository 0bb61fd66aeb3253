"""The REST application, built by `create_app` and served by its caller."""

from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry
from starlette.types import Scope

from api.access.identity_cache import IdentityCache
from api.access.oidc import Provider
from api.access.rate_limit import RateLimit
from api.dashboard import oidc, pages
from api.http import errors
from api.http.hosts import AllowedHosts
from api.http.requests import BodyLimit, RequestLog
from api.live.listeners import LiveFeed
from api.live.orders import Orders
from api.live.tunnels import Tunnels
from api.metrics import StoreCollector
from api.routes import (
    audit,
    autopilot,
    batches,
    code,
    doctor,
    endpoints,
    explain,
    infeasible,
    jobs,
    live,
    logs,
    nodes,
    notifications,
    operations,
    orders,
    overview,
    policies,
    ports,
    purging,
    reservations,
    resources,
    resubmit,
    results,
    scheduling,
    secrets,
    service,
    terminals,
    tiers,
    tokens,
    tunnels,
    users,
)
from api.services import Services

__all__ = ["Services", "create_app"]

TITLE, VERSION = "Gavel", "1"
DESCRIPTION = (
    "Submit training jobs and see how they share a cluster of mixed accelerators. Send `Authorization: Bearer TOKEN`."
    " Errors are `application/problem+json` with a stable `type`."
)

PARTS = (
    jobs,
    reservations,
    resubmit,
    batches,
    code,
    explain,
    audit,
    logs,
    live,
    ports,
    terminals,
    endpoints,
    orders,
    tunnels,
    tiers,
    users,
    tokens,
    secrets,
    notifications,
    nodes,
    infeasible,
    operations,
    overview,
    policies,
    autopilot,
    resources,
    results,
    purging,
    scheduling,
    service,
    doctor,
    pages,
    oidc,
)
# Not included as routers: the paths are whole, and a request would be matched by each router, twice by its own.
ROUTES = [route for part in PARTS for route in part.router.routes]


def create_app(services: Services, tracer_provider: TracerProvider | None = None) -> FastAPI:
    """Return the application over `services`: /v1, /healthz, /readyz, /metrics, /docs, and the dashboard at /.

    With a `tracer_provider` each request is an OpenTelemetry trace.
    """
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=_telemetry(tracer_provider),
    )
    app.state.services = services
    app.state.live = LiveFeed(services)
    app.state.orders = Orders()
    app.state.tunnels = Tunnels(services.clock)
    app.state.recent = IdentityCache(services)
    app.state.rates = RateLimit(services.settings.requests_per_user_per_s)
    settings = services.settings
    app.state.provider = Provider(settings.oidc, settings.public_url) if settings.oidc else None
    app.state.registry = CollectorRegistry()
    app.state.registry.register(StoreCollector(services))
    app.add_middleware(BodyLimit, limit_bytes=services.settings.body_bytes, code_path=code.LARGE)
    app.add_middleware(RequestLog, registry=app.state.registry, log_requests=services.settings.log_requests)
    app.add_middleware(AllowedHosts, settings=services.settings)
    errors.install(app)
    app.router.routes += ROUTES
    app.state.paths = frozenset(route.path for route in ROUTES)
    app.openapi = description  # type: ignore[method-assign]
    return app


def _telemetry(tracer_provider: TracerProvider | None) -> TelemetryConfig:
    """Add traces only: metrics are served for Prometheus, and logs are written by structlog."""
    if tracer_provider is None:
        return {"tracing": False, "metrics": False, "logs": False}
    return {"tracer_provider": tracer_provider, "metrics": False, "logs": False, "exclude": _is_watched}


def _is_watched(scope: Scope) -> bool:
    """Return whether monitors ask for this path every few seconds."""
    return scope.get("path") in ("/healthz", "/readyz", "/metrics")


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI 3.1 description, with the schema of problem documents. It needs no running service."""
    schema = get_openapi(title=TITLE, version=VERSION, description=DESCRIPTION, routes=ROUTES)
    schema["components"]["schemas"]["Problem"] = dict(errors.PROBLEM_SCHEMA)
    return schema
