"""Who opens a WebSocket: by a bearer token only. A cookie is not enough, since pages of other sites could send it."""

from typing import cast

from fastapi import WebSocket
from fastapi.responses import JSONResponse
from fastapi_problem.error import Problem
from starlette.datastructures import Headers

from api.access.auth import USER_OR_OPERATOR, digest
from api.access.identity_cache import Credential, IdentityCache
from api.http.errors import problem
from gavel.types import Identity

BEARER = "bearer "


def bearer_of(headers: Headers) -> str:
    """Return the bearer token or key that a request came with; "" without one."""
    header = headers.get("authorization", "")
    return header[len(BEARER) :].strip() if header.lower().startswith(BEARER) else ""


def credential_of(websocket: WebSocket) -> Credential | None:
    """Return the token that the request came with; None without one."""
    token = bearer_of(websocket.headers)
    return Credential(digest(token)) if token else None


async def holder_of(websocket: WebSocket) -> Identity | None:
    """Return the user or operator whose token it is; None for anybody else. Raise StoreUnavailable."""
    credential, cache = credential_of(websocket), cast(IdentityCache, websocket.app.state.recent)
    holder = await cache.identity(credential) if credential else None
    return holder if holder is not None and holder.scope in USER_OR_OPERATOR.scopes else None


async def caller_of(websocket: WebSocket) -> Identity:
    """Return the user or operator who opens the WebSocket. Raise a problem with status 401 or 429."""
    caller = await holder_of(websocket)
    if caller is None:
        raise problem(401, "send `Authorization: Bearer TOKEN` with a valid token of a user or an operator")
    websocket.app.state.rates.count(caller)
    return caller


async def refuse(websocket: WebSocket, why: Problem) -> None:
    """Answer the request for a WebSocket with a problem document."""
    answer = JSONResponse(why.marshal(), why.status, why.headers, media_type="application/problem+json")
    await websocket.send_denial_response(answer)
