"""The service's end of the bridge: starts the child process, sends it requests with a time limit, and restarts it."""

import subprocess
import time
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from gavel.backends.nodes.protocol import Seen, Wanted
from gavel.backends.ray.protocol import RaySettings
from gavel.child_processes import start_connected
from gavel.errors import InvalidRequest

CONNECT_LIMIT_S = 45.0
HUNG_S = 15.0  # seconds without an answer, after which the bridge is restarted
RESTART_S = 3.0
READY = "ready"


class Link:
    """Calls the bridge, and never waits longer than the request allows. For one caller at a time.

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
        self._is_unanswered = False
        self._retry_at_s = 0.0
        self._last = Seen(problem=f"connecting to Ray at {settings.address}")

    def exchange(self, wanted: Wanted) -> Seen:
        """Return the bridge's answer; if there is none, the last view with the problem and no answers."""
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
        if not self._is_unanswered:
            self._connection.send(wanted)
            self._is_unanswered, self._since_s = True, time.monotonic()
        if self._connection.poll(wanted.answer_within_s + 0.2):
            seen = self._connection.recv()
            assert isinstance(seen, Seen)
            self._is_unanswered = False
            self._last = Seen(nodes=seen.nodes, is_connected=seen.is_connected, ready=seen.ready, notes=seen.notes)
            return seen
        if time.monotonic() - self._since_s > HUNG_S:
            self._end("the process that speaks with Ray hung; another one is started")
        return self._last

    def _start(self) -> None:
        with self._log_path.open("wb") as log:
            self._process, self._connection = start_connected("gavel.backends.ray.bridge", stdout=log, stderr=log)
        self._is_ready = self._is_unanswered = False
        self._since_s = time.monotonic()
        self._connection.send(self._settings)

    def _hears_ready(self, connection: "Connection[object, object]") -> bool:
        if self._is_ready:
            return True
        if connection.poll(0.0):
            message = connection.recv()
            self._is_ready = message == READY
            if not self._is_ready:
                self._end(str(message))
        elif time.monotonic() - self._since_s > CONNECT_LIMIT_S:
            self._end(f"Ray at {self._settings.address} did not let us join within {CONNECT_LIMIT_S:g} s")
        return self._is_ready

    def _end(self, problem: str) -> None:
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None
        self._is_ready = self._is_unanswered = False
        self._retry_at_s = time.monotonic() + RESTART_S
        self._last = Seen(nodes=self._last.nodes, problem=problem, notes=self._last.notes)
