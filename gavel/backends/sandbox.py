"""Runs the processes of a gang in a sandbox, with bubblewrap. Standard library only: a part of the supervisor.

One sandbox holds all of a gang on its node, so that its ranks share memory, and are each other's processes. Its first
process (sandbox_init.py) starts the programs; it and everything below it die with the supervisor.
"""

import _socket  # `socket` takes longer to load
import contextlib
import marshal
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from gavel.backends.sandbox_init import HELD, MESSAGE_BYTES
from gavel.backends.sandbox_view import NAMESPACES, arguments, close_places, open_places, view_of

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CREDENTIALS = struct.Struct("3i")  # pid, uid and gid, as the kernel attaches them
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INIT = f"import sys; sys.path.append({ROOT!r}); from gavel.backends.sandbox_init import main; main(int(sys.argv[1]))"
"""Imported and not run by its path, so that its compiled form is used."""
PROBE_LIMIT_S = 10.0
ASKED_AT_ONCE = 32  # so few that neither end waits for the other to read
ERROR_BYTES = 1 << 12


Program = tuple[list[str], str, dict[str, Any], int | None]
"""The arguments of `begin`."""


class Bubblewrap(NamedTuple):
    """The program, with its version, or the `problem` for which no sandbox can be made here."""

    path: str
    version: str = ""
    problem: str = ""


@cache
def bubblewrap() -> Bubblewrap:
    """Return what makes sandboxes on this machine, after trying it once with a harmless program."""
    import shutil
    import subprocess

    path = shutil.which("bwrap", path=SEARCH)
    if path is None:
        return Bubblewrap("", problem="bubblewrap is not here; install it (Debian's package is bubblewrap)")
    options = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *NAMESPACES)
    try:
        tried = _output([path, *options, "--", "/bin/sh", "-c", "exit 0"])
        version = _output([path, "--version"]).stdout.decode().split()[-1]
    except (OSError, subprocess.SubprocessError) as problem:
        return Bubblewrap(path, problem=f"{path} does not run: {problem}")
    words = tried.stderr.decode("utf-8", "replace").strip()
    return Bubblewrap(path, version, f"{path} makes no sandbox here: {words}" if tried.returncode else "")


def is_sandboxed(isolation: str) -> bool:
    """Return whether jobs without an image run in a sandbox here, or else not at all."""
    return isolation == "sandbox" or (isolation == "auto" and not bubblewrap().problem)


def missing_sandbox(isolation: str) -> str:
    """Return why no job can run on this node, whose jobs must run in a sandbox; "" if they can, or need none."""
    problem = bubblewrap().problem if isolation == "sandbox" else ""
    return f"jobs must run in a sandbox here (isolation = sandbox), but {problem}" if problem else ""


def _output(argv: list[str]) -> Any:
    import subprocess

    return subprocess.run(argv, capture_output=True, timeout=PROBE_LIMIT_S, check=False, stdin=subprocess.DEVNULL)


class Sandbox:
    """The sandbox of a gang, and the socket to its first process; `pid` is that of bubblewrap, a child of this process.

    `extra`: folders of the job besides those in `launch`, `rw` or `ro` by path. Raises OSError.
    """

    def __init__(self, launch: Mapping[str, Any], extra: Mapping[str, str] = {}) -> None:
        view = view_of(launch, extra)
        self._places = open_places(launch, extra, view)
        self._socket, inside = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        self._errors, errors_end = os.pipe2(os.O_CLOEXEC)
        init = [sys.executable, "-I", "-S", "-X", "utf8", "-c", INIT, str(inside.fileno())]
        os.set_inheritable(inside.fileno(), True)
        argv = [launch["sandbox"]["command"], *arguments(launch, view), "--", *init]
        self.pid = os.posix_spawn(argv[0], argv, {}, file_actions=_files(errors_end), setsigmask=HELD)
        inside.close()
        os.close(errors_end)
        self._have_places_compared()
        self._number = 0
        self._number_of: dict[int, int] = {}  # by pid, of programs whose end was not read yet
        self._pid_of: dict[int, int] = {}  # by number, of programs that `begin_all` waits for
        self._ended: list[tuple[int, int]] = []

    def _have_places_compared(self) -> None:
        """Tell the sandbox what must be mounted in it: it ends if somebody has put another folder there since."""
        states = {path: os.fstat(descriptor) for path, descriptor in self._places.items()}
        text = _memory_file({path: (state.st_dev, state.st_ino) for path, state in states.items()})
        with contextlib.suppress(BrokenPipeError):
            self._send(b"places", [text])
        os.close(text)

    def close(self) -> None:
        """Close what leads to the sandbox, which has ended."""
        close_places(self._places)
        self._socket.close()
        os.close(self._errors)

    def fileno(self) -> int:
        """Return the descriptor that can be read once there is something to look at."""
        return self._socket.fileno()

    def begin(self, argv: list[str], cwd: str, spec: dict[str, Any], stdin: int | None = None) -> tuple[int, int, int]:
        """Start a program as `processes.begin` does; the pid is that outside. Raises OSError if there is no sandbox."""
        return self.begin_all([(argv, cwd, spec, stdin)])[0]

    def begin_all(self, programs: Sequence[Program]) -> list[tuple[int, int, int]]:
        """Start programs as `begin` does; many are asked for before the first is waited for. Raises OSError."""
        begun: list[tuple[int, int, int]] = []
        for first in range(0, len(programs), ASKED_AT_ONCE):
            asked = [self._ask(*program) for program in programs[first : first + ASKED_AT_ONCE]]
            begun += [(self._begun(number), output, status) for number, output, status in asked]
        close_places(self._places)  # it has compared them
        return begun

    def _ask(self, argv: list[str], cwd: str, spec: dict[str, Any], stdin: int | None) -> tuple[int, int, int]:
        """Ask for a program; return its number, its output and a pipe for an error. Raises OSError."""
        output, output_end = os.pipe2(os.O_CLOEXEC)
        status, status_end = os.pipe2(os.O_CLOEXEC)
        given = {"cpus": spec["cpus"], "env": spec["env"], "runs_as": spec.get("runs_as")}
        text = _memory_file({"argv": argv, "cwd": cwd, **given})
        self._number += 1
        try:
            with contextlib.suppress(BrokenPipeError):  # whoever waits for it says why
                ends = [text, output_end, status_end, *([] if stdin is None else [stdin])]
                self._send(b"start %d" % self._number, ends)
        finally:
            for each in (text, output_end, status_end):
                os.close(each)
        os.set_blocking(output, False)
        return self._number, output, status

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        """Send a message with descriptors. Raises OSError."""
        rights = struct.pack(f"{len(descriptors)}i", *descriptors)
        self._socket.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])

    def _begun(self, number: int) -> int:
        """Return the pid of a program that was asked for, once it is there. Raises OSError if there is no sandbox."""
        while number not in self._pid_of:
            if not self._receive(0):
                raise OSError(f"its sandbox did not start: {self._last_words()}")
        return self._pid_of.pop(number)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a program; nothing if it has ended."""
        if pid in self._number_of:
            with contextlib.suppress(OSError):  # the sandbox has ended
                self._socket.send(b"signal %d %d" % (self._number_of[pid], number))

    def has_ended(self) -> bool:
        """Return whether a program has ended whose end was not taken yet."""
        while self._receive(_socket.MSG_DONTWAIT):
            pass
        return bool(self._ended)

    def ended(self) -> list[tuple[int, int]]:
        """Return pid and status (of waitpid) of the programs that have ended since the last call."""
        self.has_ended()
        ended, self._ended = self._ended, []
        return ended

    def _receive(self, flags: int) -> bool:
        """Take one message; return False if there is none. What a job might send is of its own programs only."""
        try:
            message, extra, _, _ = self._socket.recvmsg(MESSAGE_BYTES, _socket.CMSG_SPACE(CREDENTIALS.size), flags)
        except (BlockingIOError, ConnectionResetError):
            return False
        words = message.decode("ascii", "replace").split()
        if words[:1] == ["begun"] and extra:
            pid, number = CREDENTIALS.unpack(extra[0][2])[0], int(words[1])
            self._number_of[pid], self._pid_of[number] = number, pid
        elif words[:1] == ["ended"]:
            self._take_end(int(words[1]), int(words[2]))
        return bool(words)

    def _take_end(self, number: int, status: int) -> None:
        for pid in [pid for pid, each in self._number_of.items() if each == number]:
            del self._number_of[pid]
            self._ended.append((pid, status))

    def _last_words(self) -> str:
        """Return what bubblewrap has printed, which has ended."""
        return os.read(self._errors, ERROR_BYTES).decode("utf-8", "replace").strip() or "it ended at once"


def _memory_file(value: dict[str, Any]) -> int:
    """Return a file in memory with the value, for the other end to read."""
    file = os.memfd_create("message", os.MFD_CLOEXEC)
    os.write(file, marshal.dumps(value))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _files(errors: int) -> list[tuple[int, ...] | tuple[int, int, str, int, int]]:
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, errors, 2),
    ]
