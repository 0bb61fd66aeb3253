"""The ports of a job: bytes between a user and what a program of the job listens on, over a WebSocket."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
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
from api.routes.parameters import JobIdPath
from api.services import Services
from gavel.backends.job_ports import connected
from gavel.backends.session_use import note_connection
from gavel.backends.several.homes import local_home
from gavel.errors import GavelError
from gavel.types import Identity, Job, JobState, Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

CHUNK_BYTES = 64 << 10
LOOK_AGAIN_S = 5.0  # whether the caller may still be connected
Connect = Callable[[Services, Job], socket.socket]
"""Connects to something of a running job, on this machine. Raises Conflict."""

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
    await carried(
        websocket,
        job_id,
        lambda services, job: connected(home_of(services, job), job.id, job.generation, port),
    )


async def carried(websocket: WebSocket, job_id: str, connect: Connect) -> None:
    """Carry bytes between the caller, who may see the job, and what `connect` connects to; or refuse the request."""
    try:
        caller = await caller_of(websocket)
        with of_user.held(caller):
            await _in_turn(websocket, caller, job_id, connect)
    except Problem as why:
        await refuse(websocket, why)
    except GavelError as error:
        await refuse(websocket, of_gavel(error))


async def _in_turn(websocket: WebSocket, caller: Identity, job_id: str, connect: Connect) -> None:
    if not connections.acquire(blocking=False):
        raise problem(429, "the service has as many connections to ports of jobs as it may have; try again later")
    try:
        services = cast(Services, websocket.app.state.services)
        job = await run_sync(running_job, services, caller, job_id)
        connection = await run_sync(_connected, services, job, connect, limiter=_lookers(websocket))
        await _carry(websocket, services, job, connection)
    finally:
        connections.release()


def running_job(services: Services, caller: Identity, job_id: str) -> Job:
    """Return the job if the caller may see it and it runs. Raise a 404 or 409 problem."""
    job = visible_job(services, caller, job_id)
    if job.state is not JobState.LEASED or not job.is_wanted:
        raise problem(409, f"job {job_id} does not run, so none of its ports can be reached: {job.explanation}")
    home_of(services, job)
    return job


def home_of(services: Services, job: Job) -> Path:
    """Return the state folder with the job's gang. Raise a 409 problem if that is not on this machine."""
    home = local_home(services.settings, job.residence.region)
    if home is None:
        own = services.settings.by_region.get(job.residence.region, services.settings)
        ssh = "ssh -L PORT:127.0.0.1:PORT NODE"
        raise problem(409, f"ports are forwarded on the local backend only, not on {own.backend}; use `{ssh}` instead")
    return home


def _connected(services: Services, job: Job, connect: Connect) -> socket.socket:
    connection = connect(services, job)
    _note(services, job)
    return connection


def _note(services: Services, job: Job) -> None:
    with suppress(OSError):  # the gang has ended, or the disk is full
        note_connection(home_of(services, job), job.id, job.generation)


def _lookers(websocket: WebSocket) -> anyio.CapacityLimiter:
    state = websocket.app.state
    if not hasattr(state, "port_lookers"):
        state.port_lookers = anyio.CapacityLimiter(LOOKERS)
    return cast(anyio.CapacityLimiter, state.port_lookers)


async def _carry(websocket: WebSocket, services: Services, job: Job, connection: socket.socket) -> None:
    """Carry bytes both ways until one side ends, or the caller may not be connected any more."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES)
    try:
        await websocket.accept()
        watched = _while_allowed(websocket, services, job)
        await _first_of(_to_program(websocket, writer), _to_caller(reader, websocket), watched)
        with suppress(RuntimeError, WebSocketDisconnect):  # the caller has closed it
            await websocket.close()
    finally:
        writer.close()


async def _first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until the first one ends, then cancel the others."""
    async with anyio.create_task_group() as group:

        async def run(part: Coroutine[Any, Any, None]) -> None:
            with suppress(OSError, RuntimeError, WebSocketDisconnect):  # one of the two sides is gone
                await part
            group.cancel_scope.cancel()

        for part in parts:
            group.start_soon(run, part)


async def _to_program(websocket: WebSocket, writer: asyncio.StreamWriter) -> None:
    """Write what the caller sends; the next message is taken once the program has room for it."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        if chunk := message.get("bytes") or b"":
            writer.write(chunk)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()


async def _to_caller(reader: asyncio.StreamReader, websocket: WebSocket) -> None:
    """Send what the program writes; more is read once the caller has taken it."""
    while chunk := await reader.read(CHUNK_BYTES):
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
