"""Commands to the scheduler: a route answers 202 with an operation, or with its outcome if the caller waits for it.

A route that changes something ends with `return await answer(services, operation, response, prefer)`, on the operation
that `ask` stored.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.concurrency import run_in_threadpool

from api.access.auth import AnyAuthor
from api.http.errors import documented, of_gavel, problem
from api.routes.parameters import OperationIdPath
from api.schemas.operations import OperationError, OperationView
from api.services import Services, ServicesDep
from gavel.errors import (
    BackendUnavailable,
    Conflict,
    GavelError,
    InvalidRequest,
    InvalidResource,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from gavel.types import Identity, Operation, OperationState, Scope

router = APIRouter(prefix="/v1/operations", tags=["operations"])

WAIT_MAX_S = 10.0
LOOK_EVERY_S = 0.01

REFUSALS = {each.__name__: each for each in (InvalidRequest, InvalidResource)}
ERRORS: Mapping[str, type[GavelError]] = {
    each.__name__: each for each in (NotFound, Conflict, StaleVersion, StoreUnavailable, BackendUnavailable)
}

Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        max_length=128,
        pattern=r"^[!-~ ]*$",
        description=f"`wait=2`: answer once it is done, or after so many seconds (at most {WAIT_MAX_S:g}).",
    ),
]

_HEADERS: dict[str, Any] = {"Location": {"description": "Where the operation is.", "schema": {"type": "string"}}}
OPERATION: dict[int | str, dict[str, Any]] = {
    200: {
        "model": OperationView,
        "description": "Done, within the time that `Prefer: wait=` gave.",
        "headers": _HEADERS,
    },
    202: {"model": OperationView, "description": "Durable; the scheduler applies it next.", "headers": _HEADERS},
}


@router.get("/{operation_id}", operation_id="get_operation", responses=documented(401, 403, 404, 422, 503))
def get_operation(operation_id: OperationIdPath, caller: AnyAuthor, services: ServicesDep) -> OperationView:
    """One of your operations (operators: any). 404 also for one that ended long ago."""
    operation = services.store.operation(operation_id)
    if not may_see_operation(caller, operation):
        raise problem(404, f"no operation {operation_id}, or no longer kept")
    return operation_view(operation)


def author(caller: Identity) -> str:
    """Return the name under which a caller's operations are kept: its user, or `job/ID` for the token of a job."""
    return f"job/{caller.job_id}" if caller.scope is Scope.JOB else caller.user


def may_see_operation(caller: Identity, operation: Operation) -> bool:
    """Return whether the caller may see it: operators see every operation, others their own."""
    return caller.scope is Scope.OPERATOR or operation.by == author(caller)


async def ask(services: Services, kind: str, subject: str, body: Mapping[str, Any], caller: Identity) -> Operation:
    """Store an operation durably and return it. `kind` is a key of gavel/mechanism/commands/table.py."""
    now_s = services.clock.now_s()
    return await run_in_threadpool(
        lambda: services.store.add_command(kind, subject=subject, body=body, by=author(caller), now_s=now_s)
    )


async def answer(services: Services, operation: Operation, response: Response, prefer: str | None) -> OperationView:
    """Return the operation once it has ended, or when the wait is over. Raise the problem of a failed operation."""
    wait_s = _wait_s(prefer)
    if wait_s is not None:
        response.headers["Preference-Applied"] = f"wait={wait_s:g}"
        operation = await _ended(services, operation, wait_s)
    if operation.state is OperationState.FAILED:
        raise of_gavel(error_of(operation))
    response.status_code = 200 if operation.state is OperationState.DONE else 202
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return operation_view(operation)


async def _ended(services: Services, operation: Operation, wait_s: float) -> Operation:
    end_s = time.monotonic() + wait_s
    while operation.state is OperationState.PENDING and time.monotonic() < end_s:
        await asyncio.sleep(LOOK_EVERY_S)
        operation = await run_in_threadpool(services.store.operation, operation.id)
    return operation


def _wait_s(prefer: str | None) -> float | None:
    """Return the seconds of RFC 7240's preference `wait`, bounded; None if it is not given or cannot be read."""
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", prefer or "")
    return min(float(match[1]), WAIT_MAX_S) if match else None


def error_of(operation: Operation) -> GavelError:
    """Return the error with which an operation failed."""
    if operation.error_kind in REFUSALS:
        return REFUSALS[operation.error_kind](operation.error_field, operation.error)
    return ERRORS.get(operation.error_kind, GavelError)(operation.error)


def operation_view(operation: Operation) -> OperationView:
    """Return an operation as its author sees it."""
    return OperationView(
        id=operation.id,
        kind=operation.kind,
        subject=operation.subject,
        state=operation.state.value,
        result=dict(operation.result),
        error=_error_view(operation) if operation.state is OperationState.FAILED else None,
        by=operation.by,
        created_at_s=operation.created_at_s,
        finished_at_s=operation.finished_at_s,
    )


def _error_view(operation: Operation) -> OperationError:
    problem = of_gavel(error_of(operation))
    return OperationError(type=problem.type, detail=operation.error, field=operation.error_field or None)
