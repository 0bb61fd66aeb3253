"""Job logs: plain bytes from an offset, or followed live as server-sent events."""

import codecs
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.access.auth import AnyCaller, visible_job
from api.access.user_share import UserShare
from api.http.errors import documented
from api.live.streams import event_stream
from api.routes.parameters import JobIdPath
from api.services import Services, ServicesDep
from gavel.errors import StoreUnavailable
from gavel.types import JobId

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

CHUNK_BYTES = 64 << 10
POLL_S = 0.5
POLLS_PER_KEEPALIVE = 30
FOLLOWERS_MAX = 64  # streams at a time in one process; later clients are asked to try again
FOLLOWERS_PER_USER = 16
COME_AGAIN_MS = 5000

EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "data", "id"],
    "properties": {
        "event": {"type": "string", "enum": ["log", "end"]},
        "data": {"type": "string", "description": 'JSON: `{"text"}` of a log event, `{"state"}` of the end.'},
        "id": {"type": "string", "description": "The offset after this event."},
    },
}
OK: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Log bytes as the job wrote them, or a stream of events when followed.",
        "headers": {"X-Next-Offset": {"description": "Offset to ask for next.", "schema": {"type": "integer"}}},
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "text/event-stream": {"schema": EVENT},
        },
    }
}
followers = threading.BoundedSemaphore(FOLLOWERS_MAX)
of_user = UserShare(FOLLOWERS_PER_USER, "followed logs")


@dataclass
class LogPart:
    """Which part of a log is wanted."""

    offset: Annotated[int, Query(ge=0, le=2**53, description="Bytes since the job's first line.")] = 0
    limit: Annotated[int, Query(ge=1, le=1 << 20, description="Most bytes in the answer.")] = CHUNK_BYTES
    whole: Annotated[bool, Query(description="All from `offset` on, as a file, whatever `limit` says.")] = False


@router.get(
    "/{job_id}/logs",
    operation_id="get_log",
    response_class=Response,
    responses=OK | documented(401, 403, 404, 422, 429, 503),
)
def get_log(
    job_id: JobIdPath,
    request: Request,
    caller: AnyCaller,
    services: ServicesDep,
    part: Annotated[LogPart, Depends()],
    follow: Annotated[bool, Query(description="Stream events until the job has ended and all is read.")] = False,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**53)] = None,
) -> Response:
    """The job's log from `offset`.

    When it is full, the oldest lines are dropped, and the answer starts at a later offset.

    Followed, each event `log` carries `{"text"}`, and the offset after it as its id: `Last-Event-ID` resumes there (it
    takes precedence over `offset`). The event `end` is the last.
    """
    job = visible_job(services, caller, job_id)
    if follow:
        of_user.check(caller)
        start = part.offset if last_event_id is None else last_event_id
        return event_stream(request, of_user.stream(caller, _stream(services, job.id, start)))
    # A job may print any text: no browser may render it as a page.
    headers = {"X-Content-Type-Options": "nosniff"}
    if part.whole:
        headers["Content-Disposition"] = f'attachment; filename="{job.id}.log"'
        return StreamingResponse(_chunks(services, job.id, part.offset), media_type="text/plain", headers=headers)
    content, next_offset = services.read_log(job.id, part.offset, part.limit)
    return Response(content, media_type="text/plain", headers=headers | {"X-Next-Offset": str(next_offset)})


def _chunks(services: Services, job_id: JobId, offset: int) -> Iterator[bytes]:
    """Yield the log up to its end, at most as much as one may hold: a job may write while it is read."""
    sent_bytes = 0
    while sent_bytes < services.settings.job_log_bytes:
        content, offset = services.read_log(job_id, offset, CHUNK_BYTES)
        if not content:
            return
        sent_bytes += len(content)
        yield content


async def _stream(services: Services, job_id: JobId, offset: int) -> AsyncGenerator[bytes, None]:
    """Yield the events of a log from `offset`, if this process has room for one more follower."""
    if not followers.acquire(blocking=False):
        yield format_sse_event(comment="too many followers", retry=COME_AGAIN_MS)
        return
    try:
        async for event in _follow(services, job_id, offset):
            yield event
    except StoreUnavailable:
        # The answer has begun, so no status can report the error: the follower connects again and resumes.
        yield format_sse_event(comment="the store is busy", retry=COME_AGAIN_MS)
    finally:
        followers.release()


async def _follow(services: Services, job_id: JobId, offset: int) -> AsyncGenerator[bytes, None]:
    """Yield one chunk at a time; the next one is read only after the one before was sent."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    quiet_polls = 0
    while True:
        # The state is read first: once a job has ended, its log does not grow any more.
        job = await run_sync(services.store.job, job_id)
        content, offset = await run_sync(services.read_log, job_id, offset, CHUNK_BYTES)
        is_over = job.state.is_terminal and not content
        if text := decoder.decode(content, final=is_over):
            # A part of a character is held back until it is complete: a client that resumes must get all of it.
            waiting = len(decoder.getstate()[0])
            yield format_sse_event(data_str=json.dumps({"text": text}), event="log", id=str(offset - waiting))
        if is_over:
            yield format_sse_event(data_str=json.dumps({"state": job.state}), event="end", id=str(offset))
            return
        quiet_polls = 0 if content else quiet_polls + 1
        if not content:
            yield b"" if quiet_polls % POLLS_PER_KEEPALIVE else KEEPALIVE_COMMENT
            await anyio.sleep(POLL_S)
