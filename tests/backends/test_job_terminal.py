"""The terminal of a job: one shell for all who show the gang's key, whatever becomes of their connections."""

import asyncio
import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine
from gavel.backends.job_terminal import attached
from gavel.errors import Conflict, NotFound
from gavel_runtime import terminal
from gavel_runtime.terminal_frames import (
    EXIT,
    KEY,
    OUTPUT,
    PAYLOAD_BYTES,
    TYPED,
    Frames,
    frame,
    size_frame,
    size_of,
)

LIMIT_S = 30.0
SECRET = "b1946ac92492d2347c6235b4d2611184"
STARTS = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
subprocess.run([sys.executable, '-m', 'gavel_runtime.terminal', *sys.argv[2:]])
"""


@contextmanager
def a_terminal(state_dir: Path, job_id: str = "job", *program: str, **over: Any) -> Iterator[int]:
    """Gang 1 of the job, whose program is a terminal with this one in it; its port."""
    home = state_dir / "gangs" / job_id / "1"
    (home / "job").mkdir(parents=True)
    (state_dir / "supervisor.py").write_text(STARTS)
    machine.write_json(str(home / "launch.json"), {"ranks": [{"env": {"GAVEL_GANG_KEY": SECRET}}]})
    own = {"GAVEL_GANG_DIR": str(home / "job"), "GAVEL_RANK": "0", "GAVEL_JOB_ID": job_id, "GAVEL_GANG_KEY": SECRET}
    command = [sys.executable, str(state_dir / "supervisor.py"), str(home), *(program or ("bash", "--norc"))]
    environment = os.environ | own | {"PS1": "$ "}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as supervisor:
        assert supervisor.stdout
        supervisor.stdout.readline()
        record = {"pid": supervisor.pid, "start_time": machine.start_time(supervisor.pid), **over}
        machine.write_json(str(home / "supervisor.json"), record)
        try:
            yield port_of(home)
        finally:
            for pid in (*machine.descendants(supervisor.pid), supervisor.pid):
                machine.kill_and_wait(pid, within_s=5.0)


def port_of(home: Path) -> int:
    """The port that the terminal has named, once it has."""
    until_s = machine.boottime_s() + LIMIT_S
    while (record := machine.read_object(home / "job" / terminal.FILE)) is None:
        assert machine.boottime_s() < until_s
    return int(record["port"])


class Attached:
    """One who is attached: what was printed so far, and how the shell has ended."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(LIMIT_S)
        self.printed, self.status = b"", -1
        self._frames = Frames()

    def types(self, text: str) -> None:
        self.connection.sendall(frame(TYPED, text.encode()))

    def read(self) -> bool:
        """Take what comes next; False at the end of the connection."""
        try:
            chunk = self.connection.recv(1 << 16)
        except ConnectionResetError:
            return False
        for tag, payload in self._frames.of(chunk):
            if tag == OUTPUT:
                self.printed += payload
            elif tag == EXIT:
                self.status = payload[0]
        return bool(chunk)

    def sees(self, pattern: str) -> re.Match[bytes]:
        """What was printed that fits, once it is."""
        while not (match := re.search(pattern.encode(), self.printed)):
            assert self.read(), self.printed
        return match

    def ends(self) -> int:
        while self.read():
            pass
        return self.status


@contextmanager
def one_attached(state_dir: Path) -> Iterator[Attached]:
    with attached(state_dir, "job", 1) as connection:
        yield Attached(connection)


def test_the_shell_goes_on_between_those_who_attach(tmp_path: Path) -> None:
    with a_terminal(tmp_path):
        with one_attached(tmp_path) as first:
            first.types("seen=$((6 * 7)); echo it is $seen\n")
            first.sees("it is 42\r\n")
        with one_attached(tmp_path) as second:
            second.sees("it is 42\r\n")  # what was printed before
            second.types("echo still $seen; exit 3\n")
            second.sees("still 42\r\n")
            assert second.ends() == 3


def test_all_who_are_attached_see_the_same_and_the_window_is_that_of_the_last(tmp_path: Path) -> None:
    with a_terminal(tmp_path), one_attached(tmp_path) as one, one_attached(tmp_path) as other:
        one.connection.sendall(size_frame(50, 132))
        one.types("stty size\n")
        other.sees("50 132\r\n")
        other.connection.sendall(size_frame(24, 80))
        other.types("stty size\n")
        one.sees("24 80\r\n")


def test_ctrl_c_interrupts_what_runs_in_the_shell(tmp_path: Path) -> None:
    with a_terminal(tmp_path), one_attached(tmp_path) as one:
        one.types("sh -c 'echo begun; exec sleep 600'\n")  # what is interrupted says so: it is in the foreground then
        one.sees("[\r\n]begun")
        one.types("\x03")
        one.sees(r"\^C[^$]*\$ ")
        one.types("echo and $((40 + 2))\n")
        one.sees("and 42\r\n")
        one.types("kill -KILL $$\n")
        assert one.ends() == 137


def test_nobody_is_let_in_without_the_key(tmp_path: Path) -> None:
    with a_terminal(tmp_path) as port, one_attached(tmp_path) as owner:
        owner.types("echo a secret is here\n")
        owner.sees("[\r\n]a secret")
        wrong = frame(KEY, b"0" * 32), frame(TYPED, b"touch /tmp/x\n"), b"GET / HTTP/1.0\r\n\r\n", frame(KEY, b"")
        for sent in wrong:
            with socket.create_connection(("127.0.0.1", port), LIMIT_S) as stranger, suppress(ConnectionResetError):
                stranger.sendall(sent)
                assert stranger.recv(1) == b""


def test_strangers_who_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    with a_terminal(tmp_path) as port:
        silent = [socket.create_connection(("127.0.0.1", port), LIMIT_S) for _ in range(terminal.ATTACHED_MAX * 2)]
        with one_attached(tmp_path) as one:
            one.types("echo $((40 + 2))\n")
            one.sees("42\r\n")
        for each in silent:
            each.close()


@pytest.mark.full
def test_one_who_takes_nothing_costs_bounded_memory_and_the_others_go_on(tmp_path: Path) -> None:
    """1 one attaches and reads nothing, 2 a program prints 32 MiB, 3 the other sees all of it."""
    program = "import sys; [sys.stdout.write('y' * 79 + chr(10)) for _ in range(400_000)]"
    with a_terminal(tmp_path), one_attached(tmp_path), one_attached(tmp_path) as other:
        other.types(f'{sys.executable} -c "{program}"; echo its $((40 + 2))\n')
        while b"its 42" not in other.printed[-100:]:
            other.printed = other.printed[-200:]
            assert other.read()
        (server,) = (each for each in machine.descendants(os.getpid()) if is_terminal(each))
        assert resident_bytes(server) < 45 << 20


def is_terminal(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-m", b"gavel_runtime.terminal"]
    return False


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_it_leaves_running_does_not_keep_the_terminal(tmp_path: Path) -> None:
    with a_terminal(tmp_path), one_attached(tmp_path) as one:
        one.types("(trap '' HUP; sleep 600) & exit 0\n")
        assert one.ends() == 0


def test_too_many_are_told_so(tmp_path: Path) -> None:
    with a_terminal(tmp_path):
        those = [attached(tmp_path, "job", 1) for _ in range(terminal.ATTACHED_MAX)]
        for each in those:
            Attached(each).sees(r"\$ ")
        with one_attached(tmp_path) as another:
            another.sees("attached to this terminal already")
            assert another.ends() == -1
        for each in those:
            each.close()


def test_a_program_of_the_job_may_be_in_it(tmp_path: Path) -> None:
    with a_terminal(tmp_path, "job", sys.executable, "-c", "print(input('name? '))"), one_attached(tmp_path) as one:
        one.sees("name")
        one.types("ann\n")
        one.sees("[\r\n]ann")
        assert one.ends() == 0


def test_what_a_program_printed_last_is_read_though_nobody_has_the_terminal_any_more() -> None:
    """On a busy machine the error comes before the output has been taken."""

    async def left() -> bytes:
        printed = asyncio.StreamReader()
        protocol = terminal.Printed(printed)
        protocol.data_received(b"ann")
        protocol.connection_lost(OSError(errno.EIO, "no program has it"))
        return await printed.read()

    assert asyncio.run(left()) == b"ann"


def nothing(home: Path) -> None:
    (home / terminal.FILE).unlink()


def a_link(home: Path) -> None:
    (home / "elsewhere").write_text((home / terminal.FILE).read_text())
    nothing(home)
    (home / terminal.FILE).symlink_to("elsewhere")


def no_number(home: Path) -> None:
    (home / terminal.FILE).write_text(json.dumps({"port": "80"}))


def a_list(home: Path) -> None:
    (home / terminal.FILE).write_text("[80]")


@pytest.mark.parametrize("spoil", [nothing, a_link, no_number, a_list])
def test_a_job_that_names_no_port_has_no_terminal(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    with a_terminal(tmp_path):
        spoil(tmp_path / "gangs" / "job" / "1" / "job")
        with pytest.raises(NotFound, match="gavel interactive --shell"):
            attached(tmp_path, "job", 1)


def test_a_job_that_names_the_port_of_another_process_gets_no_key(tmp_path: Path) -> None:
    with a_terminal(tmp_path), socket.create_server(("127.0.0.1", 0)) as foreign:
        foreign.settimeout(0.0)
        record = {"port": foreign.getsockname()[1]}
        (tmp_path / "gangs" / "job" / "1" / "job" / terminal.FILE).write_text(json.dumps(record))
        with pytest.raises(Conflict, match="not the job's"):
            attached(tmp_path, "job", 1)
        with pytest.raises(BlockingIOError):
            foreign.accept()


def test_messages_are_the_same_in_whatever_pieces_they_come() -> None:
    sent = frame(TYPED, b"ls\n") + size_frame(24, 80) + frame(TYPED, b"") + frame(OUTPUT, b"x" * PAYLOAD_BYTES)
    whole = list(Frames().of(sent))
    for piece in (1, 2, 3, 7, 4096):
        frames = Frames()
        pieces = [sent[at : at + piece] for at in range(0, len(sent), piece)]
        assert [each for part in pieces for each in frames.of(part)] == whole
    assert size_of(whole[1][1]) == (24, 80)
    with pytest.raises(ValueError, match="at most"):
        list(Frames().of(frame(TYPED, bytes(PAYLOAD_BYTES + 1))))
    with pytest.raises(ValueError, match="two numbers"):
        size_of(b"1")
