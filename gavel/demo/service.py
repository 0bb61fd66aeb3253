"""Starts `gavel serve` as a process of its own, and ends all processes that it has left."""

import contextlib
import json
import os
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


class ServiceProcess:
    """`gavel serve` with a state folder of its own, on a free loopback port unless the environment names one."""

    def __init__(self, state_dir: Path, environment: dict[str, str], *, start_limit_s: float = START_LIMIT_S) -> None:
        self.state_dir = state_dir
        self._start_limit_s = start_limit_s
        self._environment = os.environ | {"GAVEL_PORT": "0"} | environment | {"GAVEL_STATE_DIR": str(state_dir)}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C while it starts, too
            self.stop()
            raise
        return self

    def start(self) -> None:
        """Start the service and wait until the API listens. Raises RuntimeError with the output if it does not."""
        self.state_dir.mkdir(parents=True, mode=0o700, exist_ok=True)
        (self.state_dir / "service.json").unlink(missing_ok=True)  # of a service that was killed
        with (self.state_dir / "serve.out").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gavel.cli", "serve"],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ready = wait_until(lambda: (self.state_dir / "service.json").exists() or self._is_over(), self._start_limit_s)
        if not ready or self._is_over():
            self.stop()
            raise RuntimeError(f"the service did not start:\n{self.output()}")
        self.url = json.loads((self.state_dir / "service.json").read_text())["url"]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kill(self) -> None:
        """End the service as a power cut would; its gangs go on to the end of their leases."""
        self.process.kill()
        assert self._process is not None
        self._process.wait(STOP_LIMIT_S)

    def stop(self) -> None:
        """End the service as Ctrl-C does, and kill the processes that still run in its folder."""
        if self._process is not None and not self._is_over():
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_LIMIT_S)
        for left in self.processes_left():  # gangs of an interrupted run, which would end with their leases
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()

    @property
    def process(self) -> psutil.Process:
        """The service's main process."""
        assert self._process is not None, "the service has not been started"
        return psutil.Process(self._process.pid)

    @property
    def operator_token(self) -> str:
        """The operator's token, which the service wrote into its state folder."""
        return (self.state_dir / "operator.token").read_text().strip()

    def output(self) -> str:
        """What the service has printed."""
        return (self.state_dir / "serve.out").read_text(errors="replace")

    def processes_left(self) -> list[psutil.Process]:
        """Return the gangs' supervisors below this state folder, and all processes whose working folder is below it."""
        folder = f"{self.state_dir}/"
        return [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if (process.info["cwd"] or "").startswith(folder)
            or (
                any("supervisor.py" in word for word in process.info["cmdline"] or ())
                and any(word.startswith(folder) for word in process.info["cmdline"])
            )
        ]

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
