"""Several services on one database, each a process of its own; none is left behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from gavel.client import Client
from gavel.demo.service import wait_until

LIMIT_S = 60.0
LEADS = "leads the scheduler"
STANDS_BY = "stands by"
SCHEDULER = "gavel.daemon.scheduling"  # a word of that process' command line


class Member:
    """One `gavel serve`, or `gavel serve --api-only`. Its output is what it says of itself."""

    def __init__(
        self, state_dir: Path, settings: dict[str, str], *options: str, wrapped_in: Sequence[str] = ()
    ) -> None:
        self.state_dir = state_dir
        self._output = state_dir.parent / f"member-{len(list(state_dir.parent.glob('member-*')))}.out"
        environment = os.environ | settings | {"GAVEL_STATE_DIR": str(state_dir), "GAVEL_PORT": "0"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*wrapped_in, sys.executable, "-m", "gavel.cli", "serve", *options],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        """Returns once the API answers."""
        self.wait_until_it_says("Gavel listens on")
        match = re.search(r"Gavel listens on (\S+)", self.output())
        assert match
        self.url = match[1]
        with self.client() as client:
            assert wait_until(client.is_alive, LIMIT_S), self.output()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            for each in (psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children()):
                each.resume()
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        """All of its output."""
        return self._output.read_text(errors="replace")

    def wait_until_it_says(self, text: str, *, times: int = 1) -> None:
        """Wait until the text is in the output `times` times; fails when the process ends before that."""
        is_over = wait_until(lambda: self.output().count(text) >= times or self.process.poll() is not None, LIMIT_S)
        assert is_over and self.output().count(text) >= times, self.output()

    def client(self) -> Client:
        """As the operator."""
        return Client(self.url, (self.state_dir / "operator.token").read_text().strip())

    def kill(self) -> None:
        """As a power cut would."""
        self.process.kill()
        self.process.wait(LIMIT_S)

    def scheduler(self) -> psutil.Process:
        """The process beside it that schedules."""
        (child,) = (each for each in psutil.Process(self.process.pid).children() if SCHEDULER in each.cmdline())
        return child

    def pause(self) -> None:
        """It stops between two instructions, whatever it was doing, and so does its scheduler."""
        for each in (self.process, self.scheduler()):
            each.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """They go on where they stopped."""
        for each in (self.process, self.scheduler()):
            each.send_signal(signal.SIGCONT)
