"""Starts `gavel serve` as its own process, and makes sure that nothing of it is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


class DemoService:
    """`gavel serve` on a free loopback port, with a state folder of its own that is emptied first."""

    def __init__(self, state_dir: Path, environment: dict[str, str]) -> None:
        self.state_dir = state_dir
        self._environment = os.environ | environment | {"GAVEL_STATE_DIR": str(state_dir), "GAVEL_PORT": "0"}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        shutil.rmtree(self.state_dir, ignore_errors=True)
        self.state_dir.mkdir(parents=True, mode=0o700)
        with (self.state_dir / "serve.out").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gavel.cli", "serve"],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ready = wait_until(lambda: (self.state_dir / "service.json").exists() or self._is_over(), START_LIMIT_S)
        if not ready or self._is_over():
            self.__exit__(None, None, None)
            raise RuntimeError(f"the service did not start:\n{self.output()}")
        self.url = json.loads((self.state_dir / "service.json").read_text())["url"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and not self._is_over():
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_LIMIT_S)
        for left in self.processes_left():  # gangs of an interrupted demo: they end with their leases, we do not wait
            left.kill()

    @property
    def process(self) -> psutil.Process:
        """The service's main process."""
        assert self._process is not None, "the service has not been started"
        return psutil.Process(self._process.pid)

    @property
    def operator_token(self) -> str:
        """The token that the service wrote for whoever runs it."""
        return (self.state_dir / "operator.token").read_text().strip()

    def output(self) -> str:
        """What the service has printed."""
        return (self.state_dir / "serve.out").read_text(errors="replace")

    def processes_left(self) -> list[psutil.Process]:
        """Processes that work in the demo's state folder: supervisors and ranks."""
        mine = []
        for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
            words = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
            if process.pid != os.getpid() and any(str(self.state_dir) in word for word in words):
                mine.append(process)
        return mine

    def _is_over(self) -> bool:
        return self._process is None or self._process.poll() is not None


def wait_until(holds: Callable[[], bool], limit_s: float, every_s: float = 0.1) -> bool:
    """True as soon as `holds()`; False if it has not within the limit."""
    give_up_at_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > give_up_at_s:
            return False
        time.sleep(every_s)
    return True
