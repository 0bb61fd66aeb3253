"""A cluster as processes of this machine, for demo, tests and benchmarks: started, awaited and stopped whole."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gavel.errors import BackendUnavailable

STOP_LIMIT_S = 10.0
SHOWN = 1200  # characters of logs in an error


class LocalCluster(ABC):
    """Programs with ports, logs and a `folder` of their own; what they are is a subclass's.

    `environment` is what commands and drivers need to find the cluster. Raises BackendUnavailable, with the last words
    of its logs, if it does not come up within `start_limit_s`.
    """

    def __init__(self, name: str, *, start_limit_s: float) -> None:
        self._name, self._start_limit_s = name, start_limit_s
        prefix = f"gavel-{name.lower()}-"
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))  # paths of sockets must be short
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it can be used."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything and delete the folder. Stopping twice does no harm."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _start(self) -> None:
        """Start everything and wait."""

    def _end(self) -> None:
        """End every process, the newest first."""
        for name in [*self._processes][::-1]:
            self._kill(name)

    def _spawn(self, name: str, command: Sequence[str], **more: str) -> None:
        """Start a program in a session of its own, with the cluster's environment and `more`, and its log."""
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        """Kill one program, if it is there."""
        process = self._processes.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(STOP_LIMIT_S)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _await(self, holds: Callable[[], bool], problem: str) -> None:
        """Wait for the condition; raise BackendUnavailable if it takes too long, or a program has ended."""
        gives_up_at_s = time.monotonic() + self._start_limit_s
        while not holds():
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > gives_up_at_s:
                why = f"{problem} ({', '.join(ended)} ended)" if ended else problem
                logs = " ".join(path.read_text(errors="replace")[-SHOWN // 2 :] for path in self.folder.glob("*.log"))
                raise BackendUnavailable(f"{self._name} did not start, {why}: {' '.join(logs.split())[-SHOWN:]}")
            time.sleep(0.05)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return so many ports that nobody listens at now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
