"""The ports of a job: bytes between a user and what a program of the job listens on, over a WebSocket."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, cast

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi import Path as PathParameter
from fastapi_problem.error import Problem

from api.access.auth import visible_job
from api.access.user_share import UserShare
from api.access.websockets import caller_of, holder_of, refuse
from api.http.errors import of_gavel, problem
from api.live.peers import CHUNK_BYTES, AgentPeer, HerePeer, Peer
from api.live.tunnels import Agents, Tunnels
from api.routes.parameters import JobIdPath
from api.services import Services
from gavel.backends.job_terminal import opened
from gavel.backends.session_use import note_connection
from gavel.backends.several.homes import boxes_of_gang, local_home, nodes_section, of_region
from gavel.errors import GavelError
from gavel.types import Identity, Job, JobState, Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

NO_PROGRAM = {"simulated": "jobs of the simulated backend run no program, so none of their ports can be reached"}
LOOK_AGAIN_S = 5.0  # whether the caller may still be connected
CONNECTIONS_MAX = 256  # in one process
CONNECTIONS_PER_USER = 32
LOOKERS = 2  # threads that look at the machine's sockets at a time, so that other requests find threads

connections = threading.BoundedSemaphore(CONNECTIONS_MAX)
of_user = UserShare(CONNECTIONS_PER_USER, "connections to ports of jobs")


@router.websocket("/{job_id}/ports/{port}")
async def forward_port(
    websocket: WebSocket, job_id: JobIdPath, port: Annotated[int, PathParameter(ge=1, le=65535)]
) -> None:
    """Carry binary messages to the port of a running job's rank 0 and back; an empty one ends what the caller sends.

    Refused as a request is, by a problem document: 401, 404, 409 (it does not run, nothing of it listens there), 429.
    """
    await carried(websocket, job_id, port)


async def carried(websocket: WebSocket, job_id: str, port: int | None) -> None:
    """Carry bytes between the caller, who may see the job, and its port (None: its terminal), or refuse the request."""
    try:
        caller = await caller_of(websocket)
        with of_user.held(caller):
            await _in_turn(websocket, caller, job_id, port)
    except Problem as why:
        await refuse(websocket, why)
    except GavelError as error:
        await refuse(websocket, of_gavel(error))


async def _in_turn(websocket: WebSocket, caller: Identity, job_id: str, port: int | None) -> None:
    if not connections.acquire(blocking=False):
        raise problem(429, "the service has as many connections to ports of jobs as it may have; try again later")
    try:
        services = cast(Services, websocket.app.state.services)
        job = await run_sync(running_job, services, caller, job_id)
        async with _reached(websocket, services, job, port) as peer:
            await run_sync(_note, services, job)
            await _carry(websocket, services, job, peer)
    finally:
        connections.release()


def running_job(services: Services, caller: Identity, job_id: str) -> Job:
    """Return the job if the caller may see it and it runs. Raise a 404 or 409 problem."""
    job = visible_job(services, caller, job_id)
    if job.state is not JobState.LEASED or not job.is_wanted:
        raise problem(409, f"job {job_id} does not run, so none of its ports can be reached: {job.explanation}")
    return job


@asynccontextmanager
async def _reached(websocket: WebSocket, services: Services, job: Job, port: int | None) -> AsyncIterator[Peer]:
    """Give the program that listens: on this machine, or on that of the job's agent. Raises Conflict, NotFound."""
    home = local_home(services.settings, job.residence.region)
    if home is None:
        tunnels = cast(Tunnels, websocket.app.state.tunnels)
        agents = await run_sync(_agents, websocket, services, job, limiter=_lookers(websocket))
        async with tunnels.opened(agents, job, port) as agent:
            yield AgentPeer(agent)
    else:
        limiter = _lookers(websocket)
        connection = await run_sync(opened, home, job.id, job.generation, port, limiter=limiter)
        reader, writer = await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES)
        try:
            yield HerePeer(reader, writer)
        finally:
            writer.close()


def _agents(websocket: WebSocket, services: Services, job: Job) -> Agents:
    """Return where the agents of the job's gang are asked. Raise a 409 problem if it has none."""
    own = of_region(services.settings, job.residence.region) or services.settings
    boxes = boxes_of_gang(services.settings, job.residence.region, (job.id, job.generation))
    if not boxes:
        raise problem(409, NO_PROGRAM.get(own.backend, f"job {job.id} has no node yet; see `gavel job show`"))
    section = nodes_section(own)
    certificates = section.ca_file.read_text() if section is not None and section.ca_file else ""
    return Agents(boxes=boxes, url=_own_url(websocket, services), certificates=certificates)


def _own_url(websocket: WebSocket, services: Services) -> str:
    """Return the service's address for nodes: its public one, else the one at which the caller has reached it."""
    if services.settings.public_url:
        return services.settings.public_url.rstrip("/")
    host, port = websocket.scope["server"]
    scheme = "https" if services.settings.tls_cert_file else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _note(services: Services, job: Job) -> None:
    """Remember that somebody is connected, where that is asked for."""
    if job.spec.idle_s is not None:
        gang = (job.id, job.generation)
        note_connection(services.settings, job.residence.region, gang, services.clock.now_s())


def _lookers(websocket: WebSocket) -> anyio.CapacityLimiter:
    state = websocket.app.state
    if not hasattr(state, "port_lookers"):
        state.port_lookers = anyio.CapacityLimiter(LOOKERS)
    return cast(anyio.CapacityLimiter, state.port_lookers)


async def _carry(websocket: WebSocket, services: Services, job: Job, peer: Peer) -> None:
    """Carry bytes both ways until one side ends, or the caller may not be connected any more."""
    await websocket.accept()
    watched = _while_allowed(websocket, services, job)
    await _first_of(_to_program(websocket, peer), _to_caller(peer, websocket), watched)
    with suppress(RuntimeError, WebSocketDisconnect):  # the caller has closed it
        await websocket.close()


async def _first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until the first one ends, then cancel the others."""
    async with anyio.create_task_group() as group:

        async def run(part: Coroutine[Any, Any, None]) -> None:
            with suppress(OSError, RuntimeError, WebSocketDisconnect):  # one of the two sides is gone
                await part
            group.cancel_scope.cancel()

        for part in parts:
            group.start_soon(run, part)


async def _to_program(websocket: WebSocket, peer: Peer) -> None:
    """Write what the caller sends; the next message is taken once the program has room for it."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        if chunk := message.get("bytes") or b"":
            await peer.write(chunk)
        else:
            await peer.end()


async def _to_caller(peer: Peer, websocket: WebSocket) -> None:
    """Send what the program writes; more is read once the caller has taken it."""
    while chunk := await peer.read():
        await websocket.send_bytes(chunk)


async def _while_allowed(websocket: WebSocket, services: Services, job: Job) -> None:
    """Return when the token is not valid any more; note meanwhile that somebody is connected to the session."""
    while await _is_still_allowed(websocket, job):
        await run_sync(_note, services, job)
        await anyio.sleep(LOOK_AGAIN_S)


async def _is_still_allowed(websocket: WebSocket, job: Job) -> bool:
    try:
        holder = await holder_of(websocket)
    except GavelError:  # the store is busy: whoever was allowed a moment ago is not cut off for that
        return True
    return holder is not None and (job.spec.user == holder.user or holder.scope is Scope.OPERATOR)
