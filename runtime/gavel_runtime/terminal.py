"""A terminal of a job for `gavel attach`: a shell that goes on while nobody is attached.

    python -m gavel_runtime.terminal [PROGRAM [ARGUMENT..]]

It listens on a port of 127.0.0.1 and names it in terminal.json of the gang's directory. Whoever connects shows the
gang's key first: the service has it, other users of the machine have not. All who are attached see the same shell; one
who attaches later is shown the end of what was printed before.
"""

import asyncio
import fcntl
import hmac
import json
import os
import pty
import shutil
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from gavel_runtime.terminal_frames import EXIT, EXIT_STATUS_MAX, KEY, OUTPUT, SIZE, TYPED, Frames, frame, size_of

HOST = "127.0.0.1"
FILE = "terminal.json"
SHELLS = ("bash", "sh")
CHUNK_BYTES = 1 << 15
RECENT_BYTES = 1 << 16  # of what was printed, for one who attaches later; the most that a message has
ATTACHED_MAX = 8
STRANGERS_MAX = 64  # connections that have not shown the key
KEY_LIMIT_S = 5.0
STALL_S = 10.0  # one who takes nothing for so long is left behind, and can attach again
LAST_OUTPUT_S = 3.0  # to pass on what the shell printed last; programs that it leaves may hold the terminal for ever
FULL_S = 0.01  # until the terminal may take more of what was typed
IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, or a service that was started in the background of a script: not in a terminal."""


class Terminal:
    """A shell on a pseudo-terminal, and those who are attached to it. `master` is the pseudo-terminal's other end."""

    def __init__(self, master: int, key: bytes) -> None:
        self._master, self._key = master, key
        self._recent = b""
        self._attached: set[asyncio.StreamWriter] = set()
        self._strangers = 0

    async def serve(self, shell: int, file: Path) -> None:
        """Serve until the process `shell` has ended, and tell all who are attached how it did. `file` gets the port."""
        server = await asyncio.start_server(self._attach, HOST, 0, limit=CHUNK_BYTES)
        _write_port(file, server.sockets[0].getsockname()[1])
        showing = asyncio.create_task(self._show_output())
        status = await _exit_status(shell)
        await asyncio.wait({showing}, timeout=LAST_OUTPUT_S)
        showing.cancel()
        server.close()
        await self._send(frame(EXIT, bytes([status])))
        await asyncio.gather(*map(_closed, self._attached))

    async def _attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            messages = _messages(reader)
            if await self._is_admitted(messages) and self._enter(writer):
                async for tag, payload in messages:
                    await self._obey(tag, payload)
        except (OSError, ValueError):  # it is gone, or sends what no client does
            pass
        finally:
            self._attached.discard(writer)
            writer.close()

    async def _is_admitted(self, messages: AsyncIterator[tuple[bytes, bytes]]) -> bool:
        """Return whether the first message, which comes soon, is the key."""
        if self._strangers >= STRANGERS_MAX:
            return False
        self._strangers += 1
        try:
            tag, payload = await asyncio.wait_for(messages.__anext__(), KEY_LIMIT_S)
        except (asyncio.TimeoutError, StopAsyncIteration):
            return False
        finally:
            self._strangers -= 1
        return tag == KEY and hmac.compare_digest(payload, self._key)

    def _enter(self, writer: asyncio.StreamWriter) -> bool:
        """Show what was printed last, and from now on all that is printed; return False if there is no room."""
        if len(self._attached) >= ATTACHED_MAX:
            writer.write(frame(OUTPUT, b"%d are attached to this terminal already\r\n" % ATTACHED_MAX))
            return False
        writer.write(frame(OUTPUT, self._recent))
        self._attached.add(writer)
        return True

    async def _obey(self, tag: bytes, payload: bytes) -> None:
        if tag == TYPED:
            await self._type(payload)
        elif tag == SIZE:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *size_of(payload), 0, 0))

    async def _type(self, text: bytes) -> None:
        while text:
            try:
                text = text[os.write(self._master, text) :]
            except BlockingIOError:
                await asyncio.sleep(FULL_S)

    async def _show_output(self) -> None:
        """Pass on what is printed, and keep the end of it. More is read once all who are attached have taken it."""
        printed = asyncio.StreamReader()
        file = os.fdopen(os.dup(self._master), "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: Printed(printed), file)
        while chunk := await printed.read(CHUNK_BYTES):
            self._recent = (self._recent + chunk)[-RECENT_BYTES:]
            await self._send(frame(OUTPUT, chunk))

    async def _send(self, message: bytes) -> None:
        await asyncio.gather(*(self._send_to(each, message) for each in tuple(self._attached)))

    async def _send_to(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        try:
            writer.write(message)
            await asyncio.wait_for(writer.drain(), STALL_S)
        except (OSError, asyncio.TimeoutError):
            self._attached.discard(writer)
            writer.transport.abort()


class Printed(asyncio.StreamReaderProtocol):
    """Takes EIO, said once no program has the terminal any more, as the end: what came before it is still read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is read, whatever the error is."""
        super().connection_lost(None)


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    frames = Frames()
    while chunk := await reader.read(CHUNK_BYTES):
        for message in frames.of(chunk):
            yield message


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection once all is sent, or after a while."""
    writer.close()
    with suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), STALL_S)


async def _exit_status(process: int) -> int:
    """Return how a child has ended, as shells say it: its exit code, or 128 + the signal that ended it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(process)
    loop.add_reader(descriptor, ended.set)
    await ended.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return min(EXIT_STATUS_MAX, code if code >= 0 else 128 - code)


def _write_port(file: Path, port: int) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(json.dumps({"port": port}), encoding="utf-8")
    temporary.replace(file)


def _program(argv: Sequence[str]) -> list[str]:
    """Return what runs in the terminal: what was named, else the shell of the environment, else the first there is."""
    shells = [each for each in (os.environ.get("SHELL", ""), *SHELLS) if each and shutil.which(each)]
    return list(argv) or shells[:1]


def _become(argv: list[str]) -> None:
    """In the child: execute the program, as one that somebody has started at a terminal."""
    os.environ.setdefault("TERM", "xterm-256color")
    for each in IGNORED:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def main(argv: Sequence[str]) -> int:
    """Serve the terminal of this job until its shell ends; return 0, whatever the status of the shell is.

    That is the one of its last command, which says nothing of the session. Only rank 0 has a terminal.
    """
    if "GAVEL_GANG_DIR" not in os.environ:
        sys.exit("it runs in a job: gavel interactive --shell")
    if os.environ["GAVEL_RANK"] != "0":
        return 0
    program = _program(argv)
    if not program or not shutil.which(program[0]):
        sys.exit(f"there is no program {program[0] if program else ' or '.join(SHELLS)} here")
    shell, master = pty.fork()
    if shell == 0:
        _become(program)
    os.set_blocking(master, False)
    print(f"gavel attach {os.environ['GAVEL_JOB_ID']} reaches this terminal", flush=True)
    key = os.environ["GAVEL_GANG_KEY"].encode()
    asyncio.run(Terminal(master, key).serve(shell, Path(os.environ["GAVEL_GANG_DIR"], FILE)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
