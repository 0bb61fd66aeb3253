"""`gavel interactive --shell` and `gavel attach` at a terminal, with a real service, session and window."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.e2e.test_sessions import LIMIT_S, running

__all__ = ["running"]  # the fixture


class Command:
    """A command of `gavel` at a terminal of its own."""

    def __init__(self, running: ServiceProcess, token: str, *words: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            argv = [sys.executable, "-m", "gavel.cli", "--url", running.url, "--token", token, *words]
            os.execv(sys.executable, argv)
        self._text = b""
        self.resize(24, 80)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def sees(self, text: str) -> str:
        """Return what was printed until this text came."""
        until_s = time.monotonic() + LIMIT_S
        while text.encode() not in self._text:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until_s - time.monotonic()))
            assert ready, self._text
            self._text += self._read()
        before, _, self._text = self._text.partition(text.encode())
        return before.decode()

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, 1 << 16)
        except OSError:  # the command has ended
            raise AssertionError(self._text) from None

    def has_echo(self) -> bool:
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def ends(self) -> int:
        """Return its exit code, once all that it printed is taken."""
        while True:
            try:
                self._text += os.read(self._terminal, 1 << 16)
            except OSError:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        os.close(self._terminal)


@contextmanager
def command(running: ServiceProcess, token: str, *words: str) -> Iterator[Command]:
    began = Command(running, token, *words)
    try:
        yield began
    finally:
        began.close()


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_shell_that_is_left_lost_and_ended(running: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    """1 a session with a shell, 2 its window grows, 3 Ctrl-C, 4 Ctrl-], 5 the command is killed, 6 the shell ends."""
    with Client(running.url, running.operator_token) as operator:
        ann, bob = (operator.create_token(name) for name in ("ann", "bob"))
    with Client(running.url, ann) as client:
        with command(running, ann, "interactive", "--shell", "--name", "sh", "--longest", "600s") as first:
            first.sees("Ctrl-] leaves it")
            first.resize(50, 132)
            first.types("PS1='ready> '; stty size; kept=$GAVEL_JOB_ID\r")
            first.sees("50 132")
            # One process of its own says it and sleeps: a bash that is about to start `sleep` can lose a Ctrl-C.
            first.types("sh -c 'echo begun $((1 + 1)); exec sleep 600'\r")
            first.sees("begun 2\r\n")
            first.types("\x03")
            first.sees("ready> ")
            first.types("echo and $((40 + 2))\r")
            first.sees("and 42")
            first.types("\x1d")
            first.sees("you have left the shell")
            assert first.has_echo()
            assert first.ends() == 0
        (job,) = client.jobs(match="sh")
        with command(running, bob, "attach", job["id"]) as other:
            assert other.ends() == 2
        with command(running, ann, "attach", "sh") as second:
            second.sees("and 42")  # what was printed before
            second.types("echo it is $kept\r")
            second.sees(f"it is {job['id']}")
            os.kill(second.pid, signal.SIGKILL)
            second.ends()
        with command(running, ann, "attach", "sh") as third:
            third.types("echo still $kept; exit 3\r")
            third.sees(f"still {job['id']}")
            assert third.ends() == 3
            assert third.has_echo()
        assert wait_until(lambda: client.job(job["id"])["state"] == "COMPLETED", LIMIT_S), client.job(job["id"])
        with command(running, ann, "attach", "sh") as late:
            late.sees("does not run")
            assert late.ends() == 2


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_program_that_prints_much_before_its_terminal_is_attached_to(running: ServiceProcess) -> None:
    program = "head -c 200000 /dev/zero | tr '\\0' x; exec python -m gavel_runtime.terminal"
    with Client(running.url, running.operator_token) as operator:
        token = operator.create_token("ann")
    with command(running, token, "interactive", "--forward", "terminal", "--", "sh", "-c", program) as ann:
        ann.sees("Ctrl-] leaves it")
        ann.types("exit 4\r")
        assert ann.ends() == 4
