"""Streams of server-sent events, which end when the token that opened them is taken back."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi import Request
from fastapi.sse import EventSourceResponse

from api.recent import Recent, recent_of
from gavel.errors import StoreUnavailable

LOOK_AGAIN_S = 1.5  # whether the token of a stream is still good, while there is nothing to send


def event_stream(request: Request, chunks: AsyncGenerator[bytes, None]) -> EventSourceResponse:
    """The answer that sends these chunks; one comes at least every LOOK_AGAIN_S, empty if there is no news."""
    events = _while_known(chunks, recent_of(request), request.state.token_hash)
    return EventSourceResponse(events, headers={"Cache-Control": "no-store"})


async def _while_known(chunks: AsyncGenerator[bytes, None], recent: Recent, token_hash: str) -> AsyncIterator[bytes]:
    looked_at_s = time.monotonic()
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk or time.monotonic() - looked_at_s >= LOOK_AGAIN_S:
                looked_at_s = time.monotonic()
                if not await _is_known(recent, token_hash):
                    return
            if chunk:
                yield chunk


async def _is_known(recent: Recent, token_hash: str) -> bool:
    """False for a token that is known to be nobody's; a store that cannot be read takes no token back."""
    try:
        return await recent.identity(token_hash) is not None
    except StoreUnavailable:
        return True
