"""The REST application: put together here, served by whoever calls `create_app`."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from api import errors
from api.dashboard import pages
from api.limits import BodyLimit
from api.live import LiveFeed
from api.metrics import RequestMetrics, StoreCollector
from api.routes import (
    audit,
    batches,
    jobs,
    live,
    logs,
    nodes,
    operations,
    policy,
    resources,
    scheduling,
    service,
    tiers,
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
    audit,
    logs,
    live,
    tiers,
    nodes,
    operations,
    policy,
    resources,
    scheduling,
    service,
    pages,
)


def create_app(services: Services) -> FastAPI:
    """The application over `services`: /v1, /healthz, /readyz, /metrics, /docs, and the dashboard at /."""
    app = FastAPI(
        title="Gavel",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.services = services
    app.state.live = LiveFeed(services)
    app.state.registry = CollectorRegistry()
    app.state.registry.register(StoreCollector(services))
    app.add_middleware(BodyLimit, limit_bytes=services.settings.body_bytes)
    app.add_middleware(RequestMetrics, registry=app.state.registry)
    errors.install(app)
    for part in PARTS:
        app.include_router(part.router)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, made once, with the schema of problem documents added."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema["components"]["schemas"]["Problem"] = dict(errors.PROBLEM_SCHEMA)
        app.openapi_schema = schema
    return app.openapi_schema
