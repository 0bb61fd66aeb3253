"""`gavel top` on a real terminal, `gavel watch` in a pipe, and a waiting submit's exit code."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from api.live import listeners
from gavel.types import JobState, Scope
from tests.api.conftest import NOW_S, Service, service
from tests.command_line import Shell

__all__ = ["service"]

PROGRAM = {"argv": ["x"], "total_steps": 5, "name": "awaited", "tier": "gold"}


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> Shell:
    return Shell(tmp_path, {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)})


class Terminal:
    """A command on a terminal of 80 columns and 24 lines."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = {"PATH": os.environ["PATH"], "TERM": "xterm", "PYTHONPATH": os.getcwd(), **shell.env}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gavel.cli", *arguments],
            cwd=shell.folder,
            env=env,
            stdin=follower,
            stdout=follower,
            stderr=subprocess.PIPE,
        )
        os.close(follower)
        self.output = select.poll()
        self.output.register(self.leader, select.POLLIN)
        self.text = ""

    def read_until(self, wanted: str, limit_s: float = 30.0) -> None:
        end_s = time.monotonic() + limit_s
        while wanted not in self.text:
            assert time.monotonic() < end_s, self.text
            if self.output.poll(200):
                self.text += os.read(self.leader, 65_536).decode(errors="replace")


@contextmanager
def on_a_terminal(shell: Shell, *arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(shell, *arguments)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.communicate()
        os.close(terminal.leader)


@pytest.mark.parametrize(("how", "every_s"), [("q", 3600), ("Ctrl-C", 0.2)])
def test_top_shows_what_changes_and_is_left_by_a_key(
    service: Service, shell: Shell, how: str, every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By events at once, though it would look again in an hour only; and by looking where no events can be had."""
    if every_s < 1:
        monkeypatch.setattr(listeners, "STREAMS_MAX", 0)
    operator = service.operator()
    first = operator.post("/v1/jobs", json=PROGRAM).json()["id"]
    with on_a_terminal(shell, "top", "--every", str(every_s)) as terminal:
        terminal.read_until(first)
        second = operator.post("/v1/jobs", json=PROGRAM).json()["id"]
        terminal.read_until(second)
        if how == "q":
            os.write(terminal.leader, b"q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("\x1b[?1049l")  # the screen of before is back
        assert terminal.process.wait(timeout=30) == 0


def test_watch_prints_a_line_an_event_and_goes_on_from_a_position(service: Service, shell: Shell) -> None:
    operator = service.operator()
    with shell.start("watch", "--json") as process:
        assert process.stdout is not None
        hello = json.loads(process.stdout.readline())
        assert hello["event"] == "hello"
        job_id = operator.post("/v1/jobs", json=PROGRAM).json()["id"]
        assert json.loads(process.stdout.readline())["data"]["id"] == job_id
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    with shell.start("watch", "--after", str(hello["position"])) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("hello")
        assert process.stdout.readline().split()[:3] == ["job", job_id, "QUEUED"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


@pytest.mark.small("3-3-9", "-9-137-9")
@pytest.mark.parametrize(("ended", "code", "streams"), [(3, 3, 9), (-9, 137, 9), (None, 1, 0)])
def test_a_waiting_submit_exits_as_the_job_did(
    service: Service, shell: Shell, ended: int | None, code: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of the end, or, where no more events can be had, asks for it."""
    monkeypatch.setattr(listeners, "STREAMS_MAX", streams)
    with shell.start("job", "submit", "--steps", "5", "--wait", "--tier", "gold", "--", "true") as process:
        assert process.stderr is not None
        job = service.store.job(process.stderr.readline().split()[-1])
        service.change(replace(job, state=JobState.FAILED, finished_at_s=NOW_S + 9, exit_code=ended))
        process.communicate(timeout=60)
    assert process.returncode == code
