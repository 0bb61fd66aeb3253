"""Connections of agents to this process, each to carry a connection of a user to a port of a job on their node."""

import asyncio
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import WebSocket, WebSocketDisconnect

from api.http.errors import problem
from gavel.backends.nodes.tunnel_requests import ask, withdraw
from gavel.backends.nodes.tunnels import TunnelWanted
from gavel.errors import Conflict, NotFound
from gavel.ports import Clock
from gavel.types import Job

LIMIT_S = 8.0  # for an agent to connect, and to say that the port is there; clients wait for 10 s
ASK_AGAIN_S = 1.0  # another process of the service may have overwritten the request
THREADS = 4  # that read and write files of requests at a time, so that other requests find threads
NOT_REACHED = (
    "the job's node did not connect to the service at {url} in time: its program may not have started yet, or nodes do "
    "not reach that address, which the setting public_url names"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Where the agents of a job's gang are asked, and how their nodes reach this service."""

    boxes: Sequence[Path]
    url: str
    certificates: str = ""


@dataclass(slots=True, eq=False)
class _Awaited:
    """A tunnel: the agent's connection once it has come; `over` is set when nobody needs it any more."""

    key: str
    is_taken: bool = False
    came: asyncio.Future[WebSocket] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Tunnels:
    """The tunnels that this process waits for or uses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._awaited: dict[str, _Awaited] = {}
        self._threads = anyio.CapacityLimiter(THREADS)

    async def serve(self, websocket: WebSocket, tunnel_id: str, key: str) -> None:
        """Hold the connection of an agent while it is needed. Raise a 404 problem if nobody waits for it here."""
        awaited = self._awaited.get(tunnel_id)
        if awaited is None or awaited.is_taken or not hmac.compare_digest(awaited.key, key):
            raise problem(404, "nobody waits for this tunnel here; try again, as another process of the service may")
        awaited.is_taken = True
        await websocket.accept()
        if not awaited.came.cancelled():
            awaited.came.set_result(websocket)
            await awaited.over.wait()
        with suppress(RuntimeError, WebSocketDisconnect):  # the agent has closed it
            await websocket.close()

    @asynccontextmanager
    async def opened(self, asked: Agents, job: Job, port: int | None) -> AsyncIterator[WebSocket]:
        """Give the connection of an agent that is joined to the port of a job, or to its terminal if that is None.

        Raises Conflict, and NotFound without a terminal.
        """
        wanted = self._request(asked, job, port)
        awaited = self._awaited[wanted.id] = _Awaited(wanted.key)
        agent = None
        try:
            with anyio.move_on_after(LIMIT_S):
                agent = await self._joined(asked, wanted, awaited)
            if agent is None:
                raise Conflict(NOT_REACHED.format(url=asked.url))
            yield agent
        finally:
            del self._awaited[wanted.id]
            awaited.came.cancel()
            awaited.over.set()

    async def _joined(self, asked: Agents, wanted: TunnelWanted, awaited: _Awaited) -> WebSocket:
        """Return the agent's connection once the agent has said that the port is there. Raises Conflict, NotFound."""
        try:
            while not awaited.came.done():
                await run_sync(ask, asked.boxes, wanted, self._clock.now_s(), limiter=self._threads)
                await asyncio.wait({awaited.came}, timeout=ASK_AGAIN_S)
            agent = awaited.came.result()
            _check(await agent.receive_text())
        except (OSError, KeyError, WebSocketDisconnect) as error:
            raise Conflict("the job's node does not answer any more; see `gavel job show`") from error
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(withdraw, asked.boxes, wanted.id, self._clock.now_s(), limiter=self._threads)
        return agent

    def _request(self, asked: Agents, job: Job, port: int | None) -> TunnelWanted:
        return TunnelWanted(
            id=secrets.token_hex(16),
            key=secrets.token_urlsafe(32),
            url=asked.url,
            certificates=asked.certificates,
            job_id=job.id,
            generation=job.generation,
            port=port,
            until_s=self._clock.now_s() + 2 * LIMIT_S,
        )


def _check(answer: str) -> None:
    """Raise NotFound or Conflict if the agent says that what is wanted is not there."""
    reply: dict[str, Any] = json.loads(answer)
    refused = str(reply.get("refused", ""))
    if refused:
        raise (NotFound if reply.get("is_missing") else Conflict)(refused)
