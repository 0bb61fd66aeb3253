"""Every error as an RFC 9457 problem document with a stable `type`. It never repeats what the caller sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi_problem.error import Problem
from fastapi_problem.handler import ExceptionHandler, new_exception_handler
from starlette.exceptions import HTTPException
from starlette.routing import Match

from gavel.errors import (
    BackendUnavailable,
    Conflict,
    GavelError,
    InvalidRequest,
    KeyReused,
    LimitReached,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)

RETRY_AFTER_S = 2
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

# status -> (type, title), defined here only
KINDS: Mapping[int, tuple[str, str]] = {
    400: ("bad-request", "The request could not be read"),
    401: ("unauthenticated", "A valid bearer token is needed"),
    403: ("forbidden", "This token may not do that"),
    404: ("not-found", "There is no such thing, or it is not yours"),
    405: ("method-not-allowed", "The path does not take this method"),
    409: ("conflict", "The thing is no longer in a state that admits this"),
    410: ("gone", "It was there, and will not be again"),
    412: ("stale-version", "Somebody else changed it first: read it again"),
    413: ("body-too-large", "The request body is larger than the service takes"),
    422: ("invalid-request", "The request cannot be accepted as it is"),
    428: ("version-required", "Say which version you are changing"),
    429: ("limit-reached", "A limit of yours is reached"),
    500: ("internal-error", "The service made a mistake; its log has the details"),
    503: ("unavailable", "Try again in a moment; nothing was acknowledged"),
}


def problem(
    status: int, detail: str, *, errors: Sequence[Mapping[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Problem:
    """Return a problem document to raise. `errors` are `{"field", "message"}` pairs of a 422."""
    kind, title = KINDS.get(status, ("http-error", "The request could not be served"))
    all_headers = dict(headers or {})
    if status in (429, 503):
        all_headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    if status == 500:
        # The server closes the connection after an internal error. The header says so, so no client reuses it.
        all_headers["Connection"] = "close"
    extra: dict[str, Any] = {"errors": [dict(each) for each in errors]} if errors else {}
    return Problem(title, type_=kind, detail=detail, status=status, headers=all_headers, **extra)


def invalid(field: str, message: str) -> Problem:
    """Return a 422 problem that names one field and how to correct it."""
    return problem(422, f"{field}: {message}", errors=[{"field": field, "message": message}])


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem document."""
    handler = new_exception_handler(handlers={Exception: _translate})
    # The library has handlers of its own for these two; ours add Allow and hide what the caller sent.
    handler.handlers = {Exception: _translate}
    for kind in (Exception, GavelError, Problem, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handler)


def _translate(_: ExceptionHandler, request: Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _validation(error)
        case HTTPException(status_code=405):
            return problem(405, f"{request.method} is not for this path", headers={"Allow": _allowed(request)})
        case HTTPException():
            return problem(error.status_code, str(error.detail), headers=error.headers)
        case GavelError():
            return of_gavel(error)
        case _:
            return problem(500, "the error was logged")


def of_gavel(error: GavelError) -> Problem:
    """Return the problem document for this error."""
    match error:
        case InvalidRequest():
            return invalid(error.field, error.message)
        case KeyReused():
            return invalid("Idempotency-Key", "was used with another body; use a new key for a new request")
        case NotFound():
            return problem(404, str(error))
        case StaleVersion():
            return problem(412, str(error))
        case Conflict():
            return problem(409, str(error))
        case LimitReached():
            return problem(429, str(error))
        case StoreUnavailable() | BackendUnavailable():
            return problem(503, str(error))
        case _:
            return problem(500, "the error was logged")


def _validation(error: RequestValidationError) -> Problem:
    """Return the fields that are wrong and what each accepts; never the value, which may be a secret."""
    errors = [
        {"field": ".".join(str(part) for part in each["loc"]), "message": str(each["msg"])} for each in error.errors()
    ]
    return problem(422, f"{errors[0]['field']}: {errors[0]['message']}", errors=errors[:50])


def _allowed(request: Request) -> str:
    """Return all methods of the path. Each route holds one, so the route that matched does not know the others."""
    routes = request.app.router.routes
    takes = [m for m in METHODS if any(_matches(request, m, route) for route in routes)]
    return ", ".join(takes)


def _matches(request: Request, method: str, route: Any) -> bool:
    scope = {**request.scope, "method": method, "fastapi": {}}
    return bool(route.matches(scope)[0] == Match.FULL)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of a route for these statuses; with 401 comes 429, the callers' rate limit."""
    also = {429} if 401 in statuses else set()
    return {status: _document(status) for status in sorted({*statuses, *also})}


def _document(status: int) -> dict[str, Any]:
    kind, title = KINDS[status]
    example = {"type": kind, "title": title, "status": status, "detail": "what is wrong, and what would be accepted"}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": title, "content": {"application/problem+json": {"schema": schema, "example": example}}}


PROBLEM_SCHEMA: Mapping[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457. `type` is stable, `detail` is for people; `errors` says which fields were refused.",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
