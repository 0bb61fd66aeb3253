"""One reader of the store in each process, which hands what is new to every client that listens.

The reader runs only while somebody listens. A client that does not keep up is let go when its buffer is full: it comes
back with its Last-Event-ID and reads what it missed from the store.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from anyio.to_thread import run_sync
from fastapi.sse import format_sse_event

from api.news import Audience, News, read_news
from api.services import Services
from api.streams import LOOK_AGAIN_S
from gavel.errors import StoreUnavailable

LOOK_EVERY_S = 0.2
STREAMS_MAX = 1000  # of one process at a time; who comes later is told to come again
BUFFERED_CHUNKS = 256  # of a client that does not keep up
KEEPALIVE_S = 15.0
COME_AGAIN_MS = 5000


class Listener:
    """A client's buffer. `position`: all after it arrives here."""

    def __init__(self, audience: Audience, position: int) -> None:
        self.audience = audience
        self.position = position
        self.is_behind = False
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(BUFFERED_CHUNKS)

    def offer(self, position: int, chunk: bytes) -> None:
        """Put a chunk behind the others; if it finds no room, the client has to come again."""
        if not self.is_behind and not self._chunks.full():
            self.position = position
            if chunk:
                self._chunks.put_nowait(chunk)
        else:
            self.is_behind = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """What arrives, and a sign of life when nothing does; ends when something was lost."""
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
            yield chunk  # out here, where no time runs out: a client that reads slowly holds it


class LiveFeed:
    """Fans out what the store has new. For one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listeners: set[Listener] = set()
        self._position: int | None = None  # of the reader; None: nobody listens
        self._reader: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def has_room(self) -> bool:
        """Whether one more client may listen."""
        return len(self._listeners) < STREAMS_MAX

    async def stream(self, audience: Audience, after: int | None) -> AsyncGenerator[bytes, None]:
        """Events after a position, or from now on; without end, but for a client that is to come again."""
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
            pass  # the answer has begun, so no status can say it any more
        yield format_sse_event(comment="come again", retry=COME_AGAIN_MS)

    async def _join(self, audience: Audience) -> Listener:
        """A listener that hears everything after its position; the reader begins if nobody listened before."""
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
            news = await self._read(position, listener.audience)
            position = news.position
            if chunk := news.events[listener.audience]:
                yield chunk

    async def _run(self) -> None:
        """Read on while anybody listens."""
        try:
            while self._listeners:
                await asyncio.sleep(LOOK_EVERY_S)
                async with self._turn:  # nobody joins between what is read and what is handed out
                    await self._look()
        finally:
            self._position = None
            for each in self._listeners:
                each.is_behind = True

    async def _look(self) -> None:
        try:
            news = await self._read(self._position, *{each.audience for each in self._listeners})
        except StoreUnavailable:
            return  # the next look finds it
        self._position = news.position
        for each in self._listeners:
            each.offer(news.position, news.events[each.audience])

    async def _read(self, after: int | None, *audiences: Audience) -> News:
        return await run_sync(read_news, self._services, after, audiences)
