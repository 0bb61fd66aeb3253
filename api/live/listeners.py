"""One reader of the store in each process, which passes new events to every client that listens.

The reader runs only while somebody listens. A client that reads too slowly is disconnected when its buffer is full: it
comes back with its Last-Event-ID and reads what it missed from the store.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from anyio.to_thread import run_sync
from fastapi.sse import format_sse_event

from api.live.events import Audience, EventBatch, read_events
from api.live.streams import LOOK_AGAIN_S
from api.services import Services
from gavel.errors import StoreUnavailable

LOOK_EVERY_S = 0.2
STREAMS_MAX = 1000  # at a time in one process; later clients are asked to try again
BUFFERED_CHUNKS = 256  # of a client that does not keep up
KEEPALIVE_S = 15.0
COME_AGAIN_MS = 5000


class Listener:
    """A client's buffer. It receives every event after `position`."""

    def __init__(self, audience: Audience, position: int) -> None:
        self.audience = audience
        self.position = position
        self.is_behind = False
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(BUFFERED_CHUNKS)

    def offer(self, position: int, chunk: bytes) -> None:
        """Append a chunk. If the buffer is full, the client has to connect again."""
        if not self.is_behind and not self._chunks.full():
            self.position = position
            if chunk:
                self._chunks.put_nowait(chunk)
        else:
            self.is_behind = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what arrives, or an empty comment when nothing does. End when something was lost."""
        quiet_s = 0.0
        while not self.is_behind:
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    chunk = await self._chunks.get()
                quiet_s = 0.0
            except TimeoutError:
                quiet_s += LOOK_AGAIN_S
                is_due = quiet_s % KEEPALIVE_S < LOOK_AGAIN_S
                chunk = format_sse_event(comment="here", id=str(self.position)) if is_due else b""
            yield chunk  # outside the timeout: a client that reads slowly may block here


class LiveFeed:
    """Passes what is new in the store to all listeners. For one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listeners: set[Listener] = set()
        self._position: int | None = None  # of the reader; None: nobody listens
        self._reader: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def has_room(self) -> bool:
        """Return whether one more client may listen."""
        return len(self._listeners) < STREAMS_MAX

    async def stream(self, audience: Audience, after: int | None) -> AsyncGenerator[bytes, None]:
        """Yield events after a position, or from now on. It ends only when the client has to connect again."""
        try:
            listener = await self._join(audience)
            try:
                async for chunk in self._missed(listener, listener.position, after):
                    yield chunk
                async for chunk in listener.chunks():
                    yield chunk
            finally:
                self._listeners.discard(listener)
        except StoreUnavailable:
            pass  # the answer has begun, so no status can report the error
        yield format_sse_event(comment="come again", retry=COME_AGAIN_MS)

    async def _join(self, audience: Audience) -> Listener:
        """Return a listener that gets everything after its position; start the reader if this is the first listener."""
        async with self._turn:
            if self._position is None:
                self._position = (await self._read(None)).position
            listener = Listener(audience, self._position)
            self._listeners.add(listener)
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._run())
            return listener

    async def _missed(self, listener: Listener, end: int, after: int | None) -> AsyncIterator[bytes]:
        """What was written between `after` and the position at which the listener began, read from the store by pages.

        A position that the store has not come to yet is of another database: the client is told to begin anew.
        """
        if after is not None and after > end:
            yield format_sse_event(event="reset", data_str="{}", id=str(end))
            return
        position = end if after is None else after
        yield format_sse_event(event="hello", data_str="{}", id=str(position))
        while position < end:
            batch = await self._read(position, listener.audience, until=end)  # what comes later the reader passes on
            position = batch.position
            if chunk := batch.events[listener.audience]:
                yield chunk

    async def _run(self) -> None:
        """Read the store repeatedly while anybody listens."""
        try:
            while self._listeners:
                await asyncio.sleep(LOOK_EVERY_S)
                async with self._turn:  # nobody joins between reading and passing on
                    await self._look()
        finally:
            self._position = None
            for each in self._listeners:
                each.is_behind = True

    async def _look(self) -> None:
        try:
            batch = await self._read(self._position, *{each.audience for each in self._listeners})
        except StoreUnavailable:
            return  # the next read gets it
        self._position = batch.position
        for each in self._listeners:
            each.offer(batch.position, batch.events[each.audience])

    async def _read(self, after: int | None, *audiences: Audience, until: int | None = None) -> EventBatch:
        return await run_sync(read_events, self._services, after, audiences, until)
