"""Connections to ports of jobs reach processes of the gang, and nothing else of this machine."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine
from gavel.backends.job_ports import connected
from gavel.errors import Conflict

LISTENS = """
import socket, sys, time
with socket.socket() as listener:
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    while True:
        with listener.accept()[0] as there:
            there.sendall(b"of the gang")
            while sys.argv[3:] and there.recv(1):
                pass
"""
STARTS = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[2], *sys.argv[3:]])
"""


@contextmanager
def a_gang(
    state_dir: Path, job_id: str = "job", *, address: str = "127.0.0.1", port: int = 0, stays: str = "", **over: Any
) -> Iterator[int]:
    """A supervisor of gang 1 of the job, with a program below it that listens; its port.

    With `stays` the program leaves it to its peer to end a connection.
    """
    home = state_dir / "gangs" / job_id / "1"
    home.mkdir(parents=True, exist_ok=True)
    (state_dir / "supervisor.py").write_text(STARTS)
    command = [sys.executable, str(state_dir / "supervisor.py"), str(home), LISTENS, address, str(port)]
    command += [stays] if stays else []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout
        listened = int(supervisor.stdout.readline())
        record = {"pid": supervisor.pid, "start_time": machine.start_time(supervisor.pid), **over}
        (home / "supervisor.json").write_text(json.dumps(record))
        below = machine.descendants(supervisor.pid)
        try:
            yield listened
        finally:
            for pid in (*below, supervisor.pid):
                machine.kill_and_wait(pid, within_s=5.0)


def test_a_port_that_a_process_of_the_gang_listens_on_is_reached(tmp_path: Path) -> None:
    with a_gang(tmp_path) as port, connected(tmp_path, "job", 1, port) as connection:
        assert connection.recv(64) == b"of the gang"


def test_a_port_of_another_process_is_not(tmp_path: Path) -> None:
    with a_gang(tmp_path), socket.create_server(("127.0.0.1", 0)) as foreign:
        foreign.settimeout(0.0)
        with pytest.raises(Conflict, match="not the job's"):
            connected(tmp_path, "job", 1, foreign.getsockname()[1])
        with pytest.raises(BlockingIOError):  # nobody has even tried
            foreign.accept()


@pytest.mark.parametrize(("own", "foreign"), [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_a_port_that_another_process_has_on_another_address_is_not(tmp_path: Path, own: str, foreign: str) -> None:
    with (
        a_gang(tmp_path, address=own) as port,
        socket.create_server((foreign, port)),
        pytest.raises(Conflict, match="not the job's"),
    ):
        connected(tmp_path, "job", 1, port)


def test_a_port_that_nobody_listens_on_is_not(tmp_path: Path) -> None:
    with a_gang(tmp_path), socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(Conflict, match="nothing listens"):
            connected(tmp_path, "job", 1, bound.getsockname()[1])


def test_the_port_of_another_gang_is_not(tmp_path: Path) -> None:
    with a_gang(tmp_path), a_gang(tmp_path / "other") as port, pytest.raises(Conflict, match="not the job's"):
        connected(tmp_path, "job", 1, port)


@pytest.mark.parametrize("over", [{"start_time": 1}, {"pid": 1}, {"pid": -5}, {"pid": "x"}])
def test_a_record_that_names_another_process_opens_nothing(tmp_path: Path, over: dict[str, Any]) -> None:
    with a_gang(tmp_path, **over) as port, pytest.raises(Conflict, match="no process of the job"):
        connected(tmp_path, "job", 1, port)


def test_a_record_that_names_a_process_of_the_machine_opens_nothing(tmp_path: Path) -> None:
    """A job that may write its gang's folder names the parent of all that listens here: this process."""
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        over = {"pid": os.getpid(), "start_time": machine.start_time(os.getpid())}
        with a_gang(tmp_path, **over), pytest.raises(Conflict, match="no process of the job"):
            connected(tmp_path, "job", 1, foreign.getsockname()[1])


def test_a_gang_that_is_not_there_has_no_ports(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="no process of the job"):
        connected(tmp_path, "job", 1, 80)
