"""The code that jobs run: stored once, sent in parts, of which only those are sent that the service lacks."""

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request

from api.access.auth import UserOrOperator
from api.http.errors import documented
from api.schemas.code import CodeLimitsView, CodeVersionPut, CodeVersionView
from api.services import ServicesDep
from api.submission.code import clear_unused
from gavel.backends.machine import boot_id
from gavel.backends.nameable_folders import nameable_folders
from gavel.code_tree import TreeFile

router = APIRouter(prefix="/v1/code-versions", tags=["jobs"])

REFUSALS = documented(400, 401, 403, 413, 422, 503)
DigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="Of the code version.")]
BINARY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("", operation_id="get_code_limits", responses=documented(401, 403))
def code_limits(caller: UserOrOperator, services: ServicesDep) -> CodeLimitsView:
    """What the service takes as the code of a job, and where jobs run."""
    is_local = services.settings.backend == "local"
    folders = nameable_folders(services.settings, caller.user) if is_local else []
    machine = boot_id() if is_local else ""
    return CodeLimitsView(max_bytes=services.code.limit_bytes, machine=machine, folders=folders)


@router.post("", operation_id="put_code_version", responses=REFUSALS)
def put_code_version(body: CodeVersionPut, caller: UserOrOperator, services: ServicesDep) -> CodeVersionView:
    """Store the list of files of a working directory. The answer names its digest, and the chunks to be sent."""
    clear_unused(services)
    files = [TreeFile(**{**each.model_dump(), "chunks": tuple(each.chunks)}) for each in body.files]
    digest, missing = services.code.put(files, caller.user)
    return CodeVersionView(digest=digest, missing=list(missing))


@router.put(
    "/{digest}/chunks",
    operation_id="put_code_chunks",
    openapi_extra=BINARY,
    responses=REFUSALS | documented(404),
)
async def put_code_chunks(
    digest: DigestPath, request: Request, caller: UserOrOperator, services: ServicesDep
) -> CodeVersionView:
    """Store chunks of a code version: each after its length, four bytes, most significant first.

    The answer names the chunks that are missing still.
    """
    missing = await run_sync(services.code.put_chunks, digest, await request.body())
    return CodeVersionView(digest=digest, missing=list(missing))
