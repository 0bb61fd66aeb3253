"""Asks the replica of a service whether it answers, and says so in a file.

Standard library only: a part of the supervisor. Nothing here waits:
the supervisor calls `look` again and again. It goes on while nobody schedules.
"""

import contextlib
import errno
import json
import os
import select
import socket
from typing import TYPE_CHECKING, Any

from gavel.backends.machine import boottime_s, write_json
from gavel.backends.meeting import LOOPBACK

if TYPE_CHECKING:
    from gavel.backends.replica_load import LoadWatch

HEALTH = "health.json"  # of a gang: the port of its replica, and whether it is ready
PORT, PORT_IN_ARGUMENTS = "GAVEL_REPLICA_PORT", "{GAVEL_REPLICA_PORT}"
"""Not GAVEL_PORT nor GAVEL_SERVICE_PORT: in pods Kubernetes sets both where there is a Service `gavel`."""
REPLICA_ADDRESS = "GAVEL_REPLICA_ADDRESS"  # where clients reach the node of the replica
STATUS_LINE_BYTES = 256


class Health:
    """The checks of one replica. `problem`: why it has to be ended, once its liveness check has failed too often."""

    def __init__(self, launch: dict[str, Any], directory: str) -> None:
        """Choose the port and tell the ranks of `launch`, which is changed. Raises OSError if there is none."""
        serving = launch["serving"]
        self.problem = ""
        self._path = os.path.join(directory, HEALTH)
        self._reserved, self._port = _port_of(serving["port"])
        _tell(launch, self._port)
        where = launch["ranks"][0]["env"].get(REPLICA_ADDRESS, LOOPBACK), self._port
        self._readiness = Repeated(serving["readiness"], where)
        self._liveness = Repeated(serving["liveness"], where) if serving["liveness"] else None
        self._load = _load_watch(serving, where, directory)
        self._was_ready = False  # ever: before that a program loads, and is not asked whether it lives
        self._is_ready: bool | None = None  # as written

    def look(self) -> None:
        """Go on with the checks, and write the file if the answer has changed. Raises OSError."""
        self._readiness.look()
        is_ready = self._readiness.passes
        self._was_ready = self._was_ready or is_ready
        if self._liveness and self._was_ready:
            self._liveness.look()
            if self._liveness.has_failed and not self.problem:
                self.problem = (
                    f"its liveness check failed {self._liveness.failures} times in a row: {self._liveness.why}"
                )
        if self._load and self._was_ready:
            self._load.look()
        if is_ready is not self._is_ready:
            write_json(self._path, {"port": self._port, "is_ready": is_ready})
            self._is_ready = is_ready


def _load_watch(serving: dict[str, Any], where: tuple[str, int], directory: str) -> "LoadWatch | None":
    if not serving.get("metrics"):
        return None
    from gavel.backends.replica_load import LOAD, LoadWatch

    return LoadWatch(serving["metrics"], serving["readiness"], where, os.path.join(directory, LOAD))


class Repeated:
    """A check that is made again and again: it passes after one good answer, and until `failures` bad ones in a row."""

    def __init__(self, check: dict[str, Any], where: tuple[str, int]) -> None:
        self.failures: int = check["failures"]
        self.passes = False
        self.why = ""
        self._check, self._where = check, where
        self._probe: Probe | None = None
        self._failed = 0
        self._next_boottime_s = 0.0

    @property
    def has_failed(self) -> bool:
        """Return True once it has failed as often as it may."""
        return self._failed >= self.failures

    def look(self) -> None:
        """Begin the next probe when it is due, or take the answer of the one under way."""
        now_s = boottime_s()
        if self._probe is None:
            if now_s < self._next_boottime_s:
                return
            self._next_boottime_s = now_s + self._check["interval_s"]
            self._probe = Probe(self._where, self._check["path"], now_s + self._check["timeout_s"])
        if self._probe.look():
            self._take(self._probe.problem)
            self._probe = None

    def _take(self, problem: str) -> None:
        self._failed = self._failed + 1 if problem else 0
        self.passes = not problem or (self.passes and not self.has_failed)
        self.why = problem


class Probe:
    """One question to HOST:PORT, as clients ask it: a connection, and for a path a GET with an answer below 400."""

    version = "HTTP/1.1"

    def __init__(self, where: tuple[str, int], path: str, until_boottime_s: float) -> None:
        self.problem = ""
        self._is_over = False
        self._until_boottime_s = until_boottime_s
        self._to_send = (
            f"GET {path} {self.version}\r\nHost: {where[0]}:{where[1]}\r\nConnection: close\r\n\r\n" if path else ""
        )
        self._is_connected = False
        self._received = b""
        self._socket = socket.socket()
        self._socket.setblocking(False)
        code = self._socket.connect_ex(where)
        if code not in (0, errno.EINPROGRESS):
            self._end(os.strerror(code))

    def look(self) -> bool:
        """Go on; return True once it is answered, with `problem` set if the answer is bad."""
        if not self._is_over and boottime_s() >= self._until_boottime_s:
            self._end("no answer in time")
        with contextlib.suppress(BlockingIOError):
            try:
                if not self._is_over:
                    self._go_on()
            except OSError as problem:
                if isinstance(problem, BlockingIOError):
                    raise
                self._end(problem.strerror or str(problem))
        return self._is_over

    def _go_on(self) -> None:
        if not self._is_connected:
            if not select.select([], [self._socket], [], 0)[1]:
                return
            if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._end(os.strerror(code))
                return
            if self._socket.getsockname() == self._socket.getpeername():  # its own port is the one that it asked for
                self._end("nobody listens there")
                return
            self._is_connected = True
            if not self._to_send:
                self._end("")
                return
            self._socket.send(self._to_send.encode("latin-1", "replace"))  # so short that the kernel takes it whole
        self._read()

    def _read(self) -> None:
        part = self._socket.recv(STATUS_LINE_BYTES)
        self._received += part
        line, end, _ = self._received.partition(b"\r\n")
        if end or not part or len(self._received) >= STATUS_LINE_BYTES:
            self._end(problem_of_status(line))

    def _end(self, problem: str) -> None:
        self._is_over, self.problem = True, problem
        self._socket.close()


def problem_of_status(status_line: bytes) -> str:
    """Return what is wrong with the first line of an answer; "" for a status below 400."""
    words = status_line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return "the answer is no HTTP"
    return "" if 200 <= int(words[1]) < 400 else f"status {int(words[1])}"


def _port_of(port: int) -> tuple[socket.socket | None, int]:
    """Return the port, and for 0 a free one with what reserves it: bound and never listening (meeting.py says why)."""
    if port:
        return None, port
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    return reserved, reserved.getsockname()[1]


def _tell(launch: dict[str, Any], port: int) -> None:
    launch["argv"] = [argument.replace(PORT_IN_ARGUMENTS, str(port)) for argument in launch["argv"]]
    for rank in launch["ranks"]:
        rank["env"][PORT] = str(port)


def health_of(launch: dict[str, Any], directory: str) -> Health | None:
    """Return the checks of the gang's replica; None if it is none, or rank 0, which listens, is on another node."""
    first = launch["ranks"][0].get("rank", 0)
    return Health(launch, directory) if launch.get("serving") and first == 0 else None


def serving_of(text: str) -> dict[str, Any] | None:
    """Return port and checks of a replica as launch.json has them, from those of its instruction; None for none."""
    return dict(json.loads(text)) if text else None
