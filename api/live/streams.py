"""Streams of server-sent events, which end with the token or session that opened them."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi import Request
from fastapi.sse import EventSourceResponse

from api.access.identity_cache import Credential, IdentityCache, identity_cache_of
from gavel.errors import StoreUnavailable

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second: nginx passes each event on at once
LOOK_AGAIN_S = 1.5  # whether the token or session of a stream is still good, while there is nothing to send


def event_stream(request: Request, chunks: AsyncGenerator[bytes, None]) -> EventSourceResponse:
    """Return the answer that sends these chunks.

    One comes at least every LOOK_AGAIN_S seconds, empty if nothing is new.
    """
    events = _while_valid(chunks, identity_cache_of(request), request.state.credential)
    return EventSourceResponse(events, headers=HEADERS)


async def _while_valid(
    chunks: AsyncGenerator[bytes, None], cache: IdentityCache, credential: Credential
) -> AsyncIterator[bytes]:
    looked_at_s = time.monotonic()
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk or time.monotonic() - looked_at_s >= LOOK_AGAIN_S:
                looked_at_s = time.monotonic()
                if not await _is_valid(cache, credential):
                    return
            if chunk:
                yield chunk


async def _is_valid(cache: IdentityCache, credential: Credential) -> bool:
    """Return False if it is certainly invalid; True while the store cannot be read."""
    try:
        return await cache.identity(credential) is not None
    except StoreUnavailable:
        return True
