"""An agent's side of tunnels: connections to the service, each of which it joins to a port of a job on its node.

That the port is one of the job is checked here, where its processes are, exactly as on the local backend.
"""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from gavel.backends.job_terminal import opened
from gavel.backends.nodes.connection import LASTING, first_of
from gavel.backends.nodes.tunnels import TUNNELS_PATH, TunnelWanted
from gavel.errors import GavelError, NotFound

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CHUNK_BYTES = 64 << 10
OPEN_LIMIT_S = 5.0
RETRY_S = 0.2
CLOSE_LIMIT_S = 5.0


class TunnelCarrier:
    """Carries the tunnels of one agent, in a thread. `state_dir`: the folder with the agent's gangs."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._wanted: frozenset[str] = frozenset()
        self._begun: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._is_closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="gavel-tunnels", daemon=True)
        self._thread.start()

    def take(self, wanted: tuple[TunnelWanted, ...]) -> None:
        """Begin the tunnels that are new; one that is not wanted any more is not tried again, but runs to its end."""
        self._wanted = frozenset(each.id for each in wanted)
        self._begun &= self._wanted
        for each in wanted:
            if each.id not in self._begun:
                self._begun.add(each.id)
                asyncio.run_coroutine_threadsafe(self._serve(each), self._loop)

    def close(self) -> None:
        """Cut off all tunnels. Closing twice does no harm."""
        self._wanted = frozenset()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._is_closed.set)
        self._thread.join(timeout=CLOSE_LIMIT_S)

    def _run(self) -> None:
        """Serve until it is closed; what is left then is cancelled."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._closing())

    async def _closing(self) -> None:
        await self._is_closed.wait()

    async def _serve(self, wanted: TunnelWanted) -> None:
        """Try until a connection is made: behind one address there may be processes that have not asked for it."""
        while wanted.id in self._wanted and not await self._made(wanted):
            await asyncio.sleep(RETRY_S)

    async def _made(self, wanted: TunnelWanted) -> bool:
        """Make the connection and serve it to its end; return whether it was made."""
        is_made = False
        try:
            async with connect(
                f"{wanted.url.replace('http', 'ws', 1)}{TUNNELS_PATH}/{wanted.id}",
                additional_headers={"Authorization": f"Bearer {wanted.key}"},
                ssl=_context(wanted),
                open_timeout=OPEN_LIMIT_S,
                **LASTING,
            ) as there:
                is_made = True
                with _cut_off(there.transport):
                    await self._carry(wanted, there)
                    await there.close()
        except (InvalidHandshake, WebSocketException, OSError, TimeoutError):
            pass  # the service cannot be reached now, or one of the two sides has ended
        return is_made

    async def _carry(self, wanted: TunnelWanted, there: "ClientConnection") -> None:
        """Tell the service whether the port is there; carry bytes until one side ends."""
        try:
            connection = await asyncio.to_thread(opened, self._state_dir, wanted.job_id, wanted.generation, wanted.port)
        except GavelError as why:
            await there.send(json.dumps({"refused": str(why), "is_missing": isinstance(why, NotFound)}))
            return
        await _joined(connection, there)


async def _joined(connection: socket.socket, there: "ClientConnection") -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES)
    try:
        with _cut_off(writer.transport):
            await there.send(json.dumps({}))
            await first_of(_to_program(there, writer), _to_service(reader, there))
    finally:
        writer.close()


@contextmanager
def _cut_off(transport: asyncio.WriteTransport) -> Iterator[None]:
    """Cut the connection off if the block is cancelled: its loop ends, and nobody waits for what is unsent."""
    try:
        yield
    except asyncio.CancelledError:
        transport.abort()
        raise


async def _to_program(there: "ClientConnection", writer: asyncio.StreamWriter) -> None:
    """Write what comes; an empty message says that no more comes, while the answer may be still on its way."""
    async for message in there:
        if isinstance(message, bytes) and message:
            writer.write(message)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()


async def _to_service(reader: asyncio.StreamReader, there: "ClientConnection") -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        await there.send(chunk)


def _context(wanted: TunnelWanted) -> ssl.SSLContext | None:
    """Return how the service is checked; None where it is not asked by https."""
    return ssl.create_default_context(cadata=wanted.certificates or None) if wanted.url.startswith("https") else None
