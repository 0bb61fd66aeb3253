"""The service itself: alive, ready, metrics, and the description of the API."""

import html
import json
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.auth import PUBLIC, OperatorOnly
from api.errors import documented, problem
from api.schemas import Health
from api.services import ServicesDep

router = APIRouter(tags=["service"])

PLAIN: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/healthz", operation_id="healthz", dependencies=[PUBLIC])
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", operation_id="readyz", dependencies=[PUBLIC], responses=documented(503))
def readyz(services: ServicesDep) -> Health:
    """The store answers and the scheduler is alive; else 503 says which does not."""
    services.store.tiers()
    if not services.is_scheduler_alive():
        raise problem(
            503, "the scheduler is not alive; jobs are accepted and wait, running gangs end with their leases"
        )
    return Health(status="ok")


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=PLAIN | documented(401, 403, 503))
def metrics(request: Request, caller: OperatorOnly) -> Response:
    """For Prometheus, with an operator's token."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False, dependencies=[PUBLIC])
def openapi(request: Request) -> JSONResponse:
    """The OpenAPI 3.1 description."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, dependencies=[PUBLIC])
def docs(request: Request) -> HTMLResponse:
    """The description as a page, rendered here: nothing is loaded from elsewhere, no script runs."""
    return HTMLResponse(
        _page(request.app.openapi()),
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )


STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
section { border-top: 1px solid #8886; padding: .6rem 0 }
code, pre { font: 13px/1.5 ui-monospace, monospace } pre { overflow-x: auto; background: #8881; padding: .6rem }
"""


def _page(description: dict[str, Any]) -> str:
    operations = [
        _operation(method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<section id='{name}'><h3>{name}</h3><pre>{_pretty(schema)}</pre></section>"
        for name, schema in sorted(description["components"]["schemas"].items())
    ]
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Gavel API</title><style>{STYLE}</style>"
        f"<h1>Gavel API</h1><p>OpenAPI {description['openapi']}: <a href='/openapi.json'>openapi.json</a></p>"
        f"{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<li><code>{html.escape(each['name'])}</code> ({each['in']}) {html.escape(each.get('description', ''))}</li>"
        for each in operation.get("parameters", [])
    )
    answers = ", ".join(sorted(operation["responses"]))
    text = html.escape(operation.get("description", ""))
    return (
        f"<section><h3><code>{method.upper()} {html.escape(path)}</code></h3>"
        f"<p>{text}</p><ul>{parameters}</ul><p>Answers {answers}.</p></section>"
    )


def _pretty(schema: dict[str, Any]) -> str:
    return html.escape(json.dumps(schema, indent=2))
