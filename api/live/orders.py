"""Orders to agents that connect here, and their replies: the API reads and writes the files by which both speak."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import anyio
from anyio.to_thread import run_sync
from fastapi import WebSocket, WebSocketDisconnect
from starlette.types import Message

from gavel.backends.nodes.relay import AgentFiles, Parts, Version

LOOK_EVERY_S = 0.02
THREADS = 4  # that read and write files of agents at a time, so that requests find threads


class Orders:
    """The agents that are connected to this process. One task looks at the files of all of them."""

    def __init__(self) -> None:
        self._changed: dict[AgentFiles, asyncio.Event] = {}
        self._versions: dict[AgentFiles, Version] = {}
        self._task: asyncio.Task[None] | None = None
        self._threads = anyio.CapacityLimiter(THREADS)

    async def serve(self, websocket: WebSocket, files: AgentFiles) -> None:
        """Carry letters and replies until the agent goes, connects again, or its allocation is over."""
        before, changed = self._changed.get(files), asyncio.Event()
        self._changed[files] = changed
        if before is not None:
            before.set()  # its connection is over: an agent has one
        self._versions[files] = await run_sync(files.version, limiter=self._threads)
        self._begin_to_look()
        await websocket.accept()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take, websocket, files, changed, group.cancel_scope)
                await self._send(websocket, files, changed)
                group.cancel_scope.cancel()
            with suppress(RuntimeError, WebSocketDisconnect):  # the agent has gone
                await websocket.close()
        finally:
            if self._is_newest(files, changed):
                del self._changed[files]
                self._versions.pop(files, None)

    async def _send(self, websocket: WebSocket, files: AgentFiles, changed: asyncio.Event) -> None:
        letter, tunnels = b"", ""  # that were sent
        with suppress(RuntimeError, WebSocketDisconnect):
            while self._is_newest(files, changed):
                changed.clear()
                message, wanted = await run_sync(_messages, files, limiter=self._threads)
                if wanted != tunnels:
                    tunnels = wanted
                    await websocket.send_text(tunnels)
                if message is not None:
                    if message != letter:
                        letter = message
                        await websocket.send_bytes(letter)
                elif await run_sync(files.are_gone, limiter=self._threads):
                    break
                await changed.wait()

    async def _take(
        self, websocket: WebSocket, files: AgentFiles, changed: asyncio.Event, scope: anyio.CancelScope
    ) -> None:
        """Take replies, as long as no newer connection of the agent is there."""
        parts = Parts()
        with suppress(OSError, RuntimeError, ValueError, WebSocketDisconnect):
            while self._is_newest(files, changed):
                whole = parts.take(_bytes_of(await websocket.receive()))
                if whole is not None and self._is_newest(files, changed):
                    await run_sync(files.take, whole, limiter=self._threads)
        scope.cancel()

    def _is_newest(self, files: AgentFiles, changed: asyncio.Event) -> bool:
        return self._changed.get(files) is changed

    def _begin_to_look(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Wake the connections whose files have changed, while there is a connection."""
        while self._changed:
            seen = await run_sync(_versions, [*self._changed], limiter=self._threads)
            for files, version in seen.items():
                if version != self._versions.get(files) and files in self._changed:
                    self._versions[files] = version
                    self._changed[files].set()
            await anyio.sleep(LOOK_EVERY_S)


def _bytes_of(message: Message) -> bytes:
    """Return what an agent sent; nothing for a text. Raises WebSocketDisconnect once it has gone."""
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    return cast(bytes, message.get("bytes") or b"")


def _messages(files: AgentFiles) -> tuple[bytes | None, str]:
    """Return the newest letter, and the tunnels that are wanted."""
    return files.message(), files.tunnels()


def _versions(all_files: Iterable[AgentFiles]) -> dict[AgentFiles, Version]:
    return {files: files.version() for files in all_files}
