"""Live events: jobs, rounds and allocations as server-sent events."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Request, Response

from api.access.auth import UserOrOperator
from api.access.user_share import UserShare
from api.http.errors import documented, problem
from api.live.events import DEFAULT_KINDS, Audience, Kind
from api.live.listeners import COME_AGAIN_MS, STREAMS_MAX, LiveFeed
from api.live.streams import event_stream
from gavel.types import Scope

router = APIRouter(prefix="/v1", tags=["scheduling"])

STREAMS_PER_USER = 64
of_user = UserShare(STREAMS_PER_USER, "event streams")

EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "data", "id"],
    "properties": {
        "event": {"type": "string", "enum": ["hello", "reset", "job", "round", "allocation", "changed"]},
        "data": {
            "type": "string",
            "description": "JSON: JobView of a job, RoundView of a round, and what api/schemas/live.py says.",
        },
        "id": {
            "type": "string",
            "description": "The position after it; the last of a commit has it.",
        },
    },
}
OK: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events without end.", "content": {"text/event-stream": {"schema": EVENT}}}
}


@router.get("/watch", operation_id="watch", response_class=Response, responses=OK | documented(401, 403, 422, 429, 503))
async def watch(
    request: Request,
    caller: UserOrOperator,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="A position; without it, from now on.")] = None,
    kind: Annotated[
        list[Kind] | None, Query(max_length=4, description="Only events of these kinds; default: all but `changed`.")
    ] = None,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**53)] = None,
) -> Response:
    """Your jobs, and rounds with your leases, as they are written; for operators everything, with allocations.

    The first event is `hello`: read the lists after it, and nothing is missed. `Last-Event-ID` resumes after that
    position (it takes precedence over `after`), with jobs as they are then. `reset`: the position is of another
    database.
    """
    live = cast(LiveFeed, request.app.state.live)
    if not live.has_room:
        raise problem(
            503,
            f"{STREAMS_MAX} clients listen already; come again",
            headers={"Retry-After": str(COME_AGAIN_MS // 1000)},
        )
    of_user.check(caller)
    start = after if last_event_id is None else last_event_id
    user = None if caller.scope is Scope.OPERATOR else caller.user
    audience = Audience(user=user, kinds=frozenset(kind) if kind else DEFAULT_KINDS)
    return event_stream(request, of_user.stream(caller, live.stream(audience, start)))
