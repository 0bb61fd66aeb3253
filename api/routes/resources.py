"""Ephemeral resources (ESCHER): applications create, resize and delete names, which steer where tasks start.

A job's token writes names of its own on the nodes that it holds; an operator's writes any.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.concurrency import run_in_threadpool

from api.access.auth import Allowed
from api.http.errors import documented, problem
from api.routes.operations import OPERATION, Prefer, answer, ask
from api.routes.parameters import IfMatch, IfNoneMatch, NamePath
from api.schemas.fields import NAME_PATTERN, NodeName
from api.schemas.operations import OperationView
from api.schemas.resources import ResourceBatch, ResourceItem, ResourcePut
from api.services import Services, ServicesDep
from gavel.types import Identity, Scope

router = APIRouter(prefix="/v1", tags=["resources"])

JobOrOperator = Annotated[Identity, Depends(Allowed(frozenset({Scope.JOB, Scope.OPERATOR})))]
ERRORS = documented(400, 401, 403, 404, 409, 412, 413, 422, 503)
Owner = Annotated[str | None, Query(pattern=NAME_PATTERN, max_length=63, description="Whose name; default: yours.")]
NodeQuery = Annotated[
    list[NodeName],
    Query(default_factory=list, max_length=1000, description="Only on these nodes; default: on all."),
]


@router.put("/resources/{name}", status_code=202, operation_id="put_resource", responses=OPERATION | ERRORS)
async def put_resource(
    name: NamePath,
    body: ResourcePut,
    response: Response,
    caller: JobOrOperator,
    services: ServicesDep,
    prefer: Prefer = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> OperationView:
    """Create, resize or renew a name on every node that `nodes` selects. The operation's result is what was written.

    If-Match with a generation changes only that generation (412 otherwise); If-None-Match: * only creates.
    """
    expected = 0 if if_none_match == "*" else _generation(if_match)
    item = ResourceItem(name=name, expect_generation=expected, **body.model_dump())
    return await _write(services, caller, f"resource/{name}", [item], response, prefer)


@router.delete("/resources/{name}", status_code=202, operation_id="delete_resource", responses=OPERATION | ERRORS)
async def delete_resource(
    name: NamePath,
    response: Response,
    caller: JobOrOperator,
    services: ServicesDep,
    node: NodeQuery,
    owner: Owner = None,
    prefer: Prefer = None,
    if_match: IfMatch = None,
) -> OperationView:
    """Delete a name: tasks that hold it keep it, no new task starts by it. No error if the name does not exist."""
    mine = owner or _owner(caller)
    _check_owner(caller, mine)
    nodes = node or await run_in_threadpool(_nodes_with, services, mine, name)
    item: dict[str, Any] = {"name": name, "owner": mine, "capacity": 0, "nodes": nodes, "ttl_s": 60.0}
    item["expect_generation"] = _generation(if_match)
    return await _command(services, caller, f"resource/{name}", [item], response, prefer)


def _nodes_with(services: Services, owner: str, name: str) -> list[str]:
    stored = (each.resource for each in services.store.resources())
    return [each.node for each in stored if (each.owner, each.name) == (owner, name)]


@router.post("/resources/batch", status_code=202, operation_id="put_resources", responses=OPERATION | ERRORS)
async def put_resources(
    body: ResourceBatch, response: Response, caller: JobOrOperator, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Many names in one transaction: all are written or, on an error, none."""
    return await _write(services, caller, "resources", body.resources, response, prefer)


async def _write(
    services: Services,
    caller: Identity,
    subject: str,
    items: list[ResourceItem],
    response: Response,
    prefer: str | None,
) -> OperationView:
    payload = [{**item.model_dump(exclude_none=True), "owner": item.owner or _owner(caller)} for item in items]
    for each in payload:
        _check_owner(caller, each["owner"])
    return await _command(services, caller, subject, payload, response, prefer)


async def _command(
    services: Services,
    caller: Identity,
    subject: str,
    items: list[dict[str, Any]],
    response: Response,
    prefer: str | None,
) -> OperationView:
    body = {"resources": items, "job_id": caller.job_id}
    operation = await ask(services, "resources.set", subject, body, caller)
    return await answer(services, operation, response, prefer)


def _owner(caller: Identity) -> str:
    return caller.job_id or caller.user


def _check_owner(caller: Identity, owner: str) -> None:
    if caller.scope is Scope.JOB and owner != caller.job_id:
        raise problem(403, f"a job's token may write names of its own only, as owner {caller.job_id}")


def _generation(if_match: str | None) -> int | None:
    """Return the generation in an If-Match header; None if there is none, or for `*`."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip().strip('"')
    if not tag.isascii() or not tag.isdigit():
        raise problem(412, "If-Match holds no generation; read it in GET /v1/cluster")
    return int(tag)
