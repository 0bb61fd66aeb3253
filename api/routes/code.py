"""The code that jobs run: stored once, sent in parts, of which only those are sent that the service lacks."""

from asyncio import get_running_loop
from concurrent.futures import Future
from contextlib import suppress
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request, Response

from api.access.auth import UserOrOperator
from api.http.errors import documented
from api.schemas.code import CodeDiffStored, CodeFetch, CodeLimitsView, CodeVersionPut, CodeVersionView, FetchedCodeView
from api.services import ServicesDep
from api.submission.code import begin_fetch, clear_unused, fetched, store_diff
from gavel.backends.git_fetch import GitCode
from gavel.backends.machine import boot_id
from gavel.backends.nameable_folders import nameable_folders
from gavel.code_tree import TreeFile

router = APIRouter(prefix="/v1", tags=["jobs"])
FETCH_ANSWER_S = 5.0  # after which the caller asks again
FETCHING: dict[int | str, dict[str, Any]] = {202: {"model": FetchedCodeView, "description": "Not yet: ask again."}}
LARGE = "/v1/code-"  # paths whose bodies may be large

REFUSALS = documented(400, 401, 403, 413, 422, 503)
DigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="Of the code version.")]
BINARY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/code-versions", operation_id="get_code_limits", responses=documented(401, 403))
def code_limits(caller: UserOrOperator, services: ServicesDep) -> CodeLimitsView:
    """What the service takes as the code of a job, and where jobs run."""
    is_local = services.settings.backend == "local"
    folders = nameable_folders(services.settings, caller.user) if is_local else []
    machine = boot_id() if is_local else ""
    return CodeLimitsView(max_bytes=services.code.limit_bytes, machine=machine, folders=folders)


@router.post("/code-versions", operation_id="put_code_version", responses=REFUSALS)
def put_code_version(body: CodeVersionPut, caller: UserOrOperator, services: ServicesDep) -> CodeVersionView:
    """Store the list of files of a working directory. The answer names its digest, and the chunks to be sent."""
    clear_unused(services)
    files = [TreeFile(**{**each.model_dump(), "chunks": tuple(each.chunks)}) for each in body.files]
    digest, missing = services.code.put(files, caller.user)
    return CodeVersionView(digest=digest, missing=list(missing))


@router.put(
    "/code-versions/{digest}/chunks",
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


@router.post(
    "/code-versions/fetch",
    operation_id="fetch_code",
    responses=documented(400, 401, 403, 413, 422, 429, 503) | FETCHING,
)
async def fetch_code(
    body: CodeFetch, caller: UserOrOperator, services: ServicesDep, response: Response
) -> FetchedCodeView:
    """Fetch the files of a git repository at a ref, and store them as a code version: once for each commit.

    A refusal has git's words. An answer 202 has no digest yet: the fetch goes on, and the same request asks again.
    """
    fetch = await run_sync(begin_fetch, body, caller.user, services)
    if not await _is_done(fetch, FETCH_ANSWER_S):
        response.status_code = 202
        return FetchedCodeView(digest="", commit="", git_url=body.git_url, git_ref=body.git_ref)
    return await run_sync(fetched, body, caller.user, services, fetch)


async def _is_done(fetch: Future[GitCode], limit_s: float) -> bool:
    """Return whether a fetch ends within a time."""
    loop, done = get_running_loop(), anyio.Event()

    def say(_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    fetch.add_done_callback(say)
    with anyio.move_on_after(limit_s):
        await done.wait()
    return fetch.done()


@router.post("/code-diffs", status_code=201, operation_id="put_code_diff", openapi_extra=BINARY, responses=REFUSALS)
async def put_code_diff(request: Request, caller: UserOrOperator, services: ServicesDep) -> CodeDiffStored:
    """Store how the code of a job differs from its commit, as `git diff` writes it. Secrets of yours become ***."""
    digest = await run_sync(store_diff, await request.body(), caller.user, services)
    return CodeDiffStored(digest=digest)
