"""Carries bytes between a port of this machine and a port of a running job, over WebSockets of the service."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gavel.cli.connection import Connection, fail

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

HOST = "127.0.0.1"
SHOWN_HOST = "localhost"
"""Another name than the dashboard's: browsers send the cookies of a host to all its ports, also to programs of jobs."""
CHUNK_BYTES = 64 << 10
MESSAGE_BYTES = 1 << 20
PORT_MAX = 65535


def ports_of(text: str) -> tuple[int, int]:
    """Return the job's port and the local one of `8888` or `8888:9999`. End the command for another text."""
    port, _, local = text.partition(":")
    try:
        ports = int(port), int(local or port)
    except ValueError:
        ports = (0, 0)
    if not (1 <= ports[0] <= PORT_MAX and 0 <= ports[1] <= PORT_MAX):
        fail(f"{text}: write the job's port, or PORT:LOCAL, such as 8888 or 8888:9999")
    return ports


def websocket_of(connection: Connection, path: str) -> str:
    """Return the address of a WebSocket of the service."""
    return f"{connection.url.replace('http', 'ws', 1).rstrip('/')}{path}"


def forward(connection: Connection, job_id: str, port: int, local: int, path: str = "/") -> None:
    """Listen on 127.0.0.1 and carry each connection to the port of the job, until Ctrl-C.

    `local` 0: any free port. `path` follows the address that is printed.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_listen(connection, job_id, port, local, path))


async def _listen(connection: Connection, job_id: str, port: int, local: int, path: str) -> None:
    address = websocket_of(connection, f"/v1/jobs/{job_id}/ports/{port}")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):  # Ctrl-C: asyncio would print the second with a traceback
            await _carry(address, connection.token, reader, writer)

    try:
        server = await asyncio.start_server(carry, HOST, local, limit=CHUNK_BYTES)
    except OSError as error:
        _fail_to_listen(port, local, error)
    chosen = server.sockets[0].getsockname()[1]
    typer.echo(f"http://{SHOWN_HOST}:{chosen}{path} is port {port} of job {job_id}, until Ctrl-C")
    async with server:
        await server.serve_forever()


def _fail_to_listen(port: int, local: int, error: OSError) -> NoReturn:
    fail(f"port {local} of this machine cannot be listened on ({error.strerror}); name another: {port}:0 takes any")


async def _carry(address: str, token: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection until the program or the one who connected here ends it."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with connect(
            address, additional_headers=headers, compression=None, max_size=MESSAGE_BYTES, proxy=None
        ) as there:
            await _first_of(_to_job(reader, there), _to_here(there, writer))
    except InvalidStatus as refused:
        detail = detail_of(bytes(refused.response.body or b""))
        typer.echo(f"gavel: {detail}", err=True)
    except (InvalidHandshake, OSError) as error:
        typer.echo(f"gavel: the service cannot be reached now: {error}", err=True)
    finally:
        writer.close()


async def _first_of(*parts: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    _, unfinished = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _to_job(reader: asyncio.StreamReader, there: "ClientConnection") -> None:
    """Send what comes in here. An empty message says that no more comes; the answer may still be on its way."""
    while chunk := await reader.read(CHUNK_BYTES):
        await there.send(chunk)
    await there.send(b"")
    await asyncio.Event().wait()  # until the program has ended its part


async def _to_here(there: "ClientConnection", writer: asyncio.StreamWriter) -> None:
    """Write what the program sends; more is taken once it has been read here."""
    async for message in there:
        writer.write(message if isinstance(message, bytes) else message.encode())
        await writer.drain()


def detail_of(body: bytes) -> str:
    """Return what the service says of a refusal, for people."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return "the service refused the connection; it may be older than this command"
