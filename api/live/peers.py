"""The program at the other end of a user's connection: reached by a socket of this machine, or by its node's agent.

An empty message of a caller says that no more comes; the program's answer may still be on its way.
"""

import asyncio
from typing import Protocol

from fastapi import WebSocket

CHUNK_BYTES = 64 << 10


class Peer(Protocol):
    """A program that bytes come from and go to. All methods may raise OSError or RuntimeError once it is gone."""

    async def read(self) -> bytes:
        """Return the next bytes; nothing at their end."""

    async def write(self, chunk: bytes) -> None:
        """Write bytes; return once there is room for more."""

    async def end(self) -> None:
        """Say that no more bytes come."""


class HerePeer:
    """A program of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Return the next bytes; nothing at their end."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, chunk: bytes) -> None:
        """Write bytes; return once the program has room for more."""
        self._writer.write(chunk)
        await self._writer.drain()

    async def end(self) -> None:
        """Say that no more bytes come."""
        if self._writer.can_write_eof():
            self._writer.write_eof()


class AgentPeer:
    """A program of another machine, whose agent has connected to the service for it."""

    def __init__(self, agent: WebSocket) -> None:
        self._agent = agent

    async def read(self) -> bytes:
        """Return the next bytes; nothing at their end."""
        while (message := await self._agent.receive())["type"] == "websocket.receive":
            if chunk := message.get("bytes") or b"":
                return bytes(chunk)
        return b""

    async def write(self, chunk: bytes) -> None:
        """Write bytes; return once the connection has room for more."""
        await self._agent.send_bytes(chunk)

    async def end(self) -> None:
        """Say that no more bytes come."""
        await self._agent.send_bytes(b"")
