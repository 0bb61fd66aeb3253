"""Attaches the terminal of this machine to the terminal of a running job, over a WebSocket of the service."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import typer

from gavel.cli.connection import Connection, fail
from gavel.cli.port_forward import MESSAGE_BYTES, detail_of, websocket_of
from gavel_runtime.terminal_frames import EXIT, OUTPUT, TYPED, Frames, frame, size_frame

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

LEAVE = b"\x1d"  # Ctrl-]
LOST = 255  # exit code, as that of ssh
TYPED_BYTES = 1 << 12


class NoTerminal(Exception):
    """The job runs without a terminal: it has none, or none yet."""


@dataclass(frozen=True, slots=True)
class End:
    """Why nobody is attached any more: the exit code of the command, and a sentence for people, if there is one."""

    exit_code: int
    message: str = ""


def attach(connection: Connection, job_id: str) -> int:
    """Attach this terminal until the shell ends or Ctrl-] is typed; return the exit code of the command.

    That is the exit status of the shell, 0 for one who leaves, 255 where the connection was lost. End the command if
    this is no terminal, or the service refuses. Raises NoTerminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("attach needs a terminal here, for its keys and its window")
    end = asyncio.run(_attached(connection, job_id))
    if end.message:
        typer.echo(f"gavel: {end.message}", err=True)
    return end.exit_code


async def _attached(connection: Connection, job_id: str) -> End:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    address = websocket_of(connection, f"/v1/jobs/{job_id}/terminal")
    headers = {"Authorization": f"Bearer {connection.token}"}
    try:
        async with connect(
            address, additional_headers=headers, compression=None, max_size=MESSAGE_BYTES, proxy=None
        ) as there:
            typer.echo(f"attached to job {job_id}; Ctrl-] leaves it, and the shell goes on", err=True)
            with _raw(sys.stdin.fileno()):
                return await _until_end(there, job_id)
    except InvalidStatus as refused:
        detail = detail_of(bytes(refused.response.body or b""))
        if refused.response.status_code == HTTPStatus.NOT_FOUND:
            raise NoTerminal(detail) from None
        fail(detail)
    except (InvalidHandshake, OSError) as error:
        fail(f"the service cannot be reached now: {error}")


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Pass every key on as it is, Ctrl-C too, while the block lasts."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)  # what was typed already is not lost
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def _until_end(there: "ClientConnection", job_id: str) -> End:
    again = f"`gavel attach {job_id}` reaches the shell again while the job runs"
    lost = End(LOST, f"the connection has ended; {again}")
    window = Window(there)
    parts = (_type(there, window, End(0, f"you have left the shell; {again}")), _show(there, lost), _follow(window))
    tasks = [asyncio.create_task(part) for part in parts]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, tasks[0].cancel)  # the terminal is set back first
    done, unfinished = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ends = (task.result() for task in done if not task.cancelled() and task.exception() is None)
    return next(ends, lost)


class Window:
    """The window of this terminal, whose size the shell is to know."""

    def __init__(self, there: "ClientConnection") -> None:
        self._there = there
        self._sent: os.terminal_size | None = None

    async def tell_size(self) -> None:
        """Say how large the window is, if that is new."""
        size = os.get_terminal_size(sys.stdout.fileno())
        if size != self._sent:
            self._sent = size
            await self._there.send(size_frame(size.lines, size.columns))


async def _type(there: "ClientConnection", window: Window, left: End) -> End:
    """Send what is typed, until Ctrl-] is. What was typed in a window of a new size comes after that size."""
    while True:
        typed, leave, _ = (await _next_keys(sys.stdin.fileno())).partition(LEAVE)
        if typed:
            await window.tell_size()
            await there.send(frame(TYPED, typed))
        if leave or not typed:
            return left


async def _next_keys(terminal: int) -> bytes:
    """Return what was typed once there is something; b"" once the terminal is gone."""
    loop, is_ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(terminal, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(terminal)
    try:
        return os.read(terminal, TYPED_BYTES)
    except OSError:
        return b""


async def _show(there: "ClientConnection", lost: End) -> End:
    """Print what the shell prints, until it ends."""
    frames = Frames()
    async for message in there:
        for tag, payload in frames.of(message if isinstance(message, bytes) else message.encode()):
            if tag == OUTPUT:
                sys.stdout.buffer.write(payload)
                sys.stdout.buffer.flush()
            elif tag == EXIT:
                return End(payload[0])
    return lost


async def _follow(window: Window) -> End:
    """Say how large the window is, now and whenever that changes."""
    has_changed = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, has_changed.set)
    while True:
        await window.tell_size()
        await has_changed.wait()
        has_changed.clear()
