"""The service's end of the bridge: a child that is started, asked, timed, and started again when it is gone."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from gavel.backends.ray.words import RaySettings, Seen, Wanted
from gavel.errors import InvalidRequest

CONNECT_LIMIT_S = 45.0
HUNG_S = 15.0  # a bridge that owes an answer for that long is started anew
RESTART_S = 3.0
READY = "ready"


class Link:
    """Asks the bridge, never for longer than it was allowed to take. For one caller at a time.

    The bridge's own output goes to `log_path`. Raises InvalidRequest if Ray, or what `ray://` needs, is not installed.
    """

    def __init__(self, settings: RaySettings, log_path: Path) -> None:
        if find_spec("ray") is None:
            raise InvalidRequest("backend", "ray is not installed: pip install 'gavel[ray]'")
        if settings.address.startswith("ray://") and find_spec("grpc") is None:
            raise InvalidRequest("ray_address", "ray:// needs grpcio, here and on the head: pip install 'ray[client]'")
        self._settings = settings
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[object, object] | None = None
        self._is_ready = False
        self._since_s = 0.0  # when the child was started, or when it was last asked
        self._is_owed = False
        self._retry_at_s = 0.0
        self._last = Seen(problem=f"connecting to Ray at {settings.address}")

    def exchange(self, wanted: Wanted) -> Seen:
        """What the bridge answers; without it, what was last known, with the problem and no answers."""
        try:
            return self._exchange(wanted)
        except (EOFError, OSError):
            self._end("the process that speaks with Ray ended; another one is started")
            return self._last

    def close(self) -> None:
        """End the bridge; groups and agents stay. Closing twice does no harm."""
        self._end("closed")

    def _exchange(self, wanted: Wanted) -> Seen:
        if self._connection is None and time.monotonic() >= self._retry_at_s:
            self._start()
        if self._connection is None or not self._hears_ready(self._connection):
            return self._last
        if not self._is_owed:
            self._connection.send(wanted)
            self._is_owed, self._since_s = True, time.monotonic()
        if self._connection.poll(wanted.answer_within_s + 0.2):
            seen = self._connection.recv()
            assert isinstance(seen, Seen)
            self._is_owed = False
            self._last = Seen(nodes=seen.nodes, is_connected=seen.is_connected, ready=seen.ready, notes=seen.notes)
            return seen
        if time.monotonic() - self._since_s > HUNG_S:
            self._end("the process that speaks with Ray hung; another one is started")
        return self._last

    def _start(self) -> None:
        ours, theirs = Pipe(duplex=True)
        with theirs, self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gavel.backends.ray.bridge", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C in the service's terminal is for the service to handle
            )
        self._connection = ours
        self._is_ready = self._is_owed = False
        self._since_s = time.monotonic()
        ours.send(self._settings)

    def _hears_ready(self, connection: "Connection[object, object]") -> bool:
        if self._is_ready:
            return True
        if connection.poll(0.0):
            said = connection.recv()
            self._is_ready = said == READY
            if not self._is_ready:
                self._end(str(said))
        elif time.monotonic() - self._since_s > CONNECT_LIMIT_S:
            self._end(f"Ray at {self._settings.address} did not let us join within {CONNECT_LIMIT_S:g} s")
        return self._is_ready

    def _end(self, problem: str) -> None:
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None
        self._is_ready = self._is_owed = False
        self._retry_at_s = time.monotonic() + RESTART_S
        self._last = Seen(nodes=self._last.nodes, problem=problem, notes=self._last.notes)
