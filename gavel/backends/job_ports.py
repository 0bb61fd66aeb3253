"""Connects to a port that a process of a job listens on, on this machine; never to a port of anything else.

A port number says nothing of who listens there. Before and after the connection is made, every socket that listens on
the port must belong to a process below the supervisor of the job's gang, as the kernel says, and be the same: another
program that takes the port in between is noticed before a byte is exchanged.
"""

import socket
from collections.abc import Collection
from pathlib import Path

import psutil

from gavel.backends import gang_processes, machine
from gavel.backends.gang_records import SPOILT, supervisor_process
from gavel.errors import Conflict
from gavel.types import JobId

HOST = "127.0.0.1"
CONNECT_LIMIT_S = 5.0
Listener = tuple[int | None, int, str]
"""A listening socket: the pid of a process that has it (None: of another user), its descriptor, the address."""


def connected(state_dir: Path, job_id: JobId, generation: int, port: int) -> socket.socket:
    """Return a connection to the port of a job whose gang runs here. Raises Conflict with a sentence if there is none.

    Takes as long as it takes to look at all processes of the machine, twice.
    """
    home = (state_dir / "gangs" / job_id / str(generation)).resolve()
    before = _listeners_of_gang(home, port)
    try:
        connection = socket.create_connection((HOST, port), timeout=CONNECT_LIMIT_S)
    except OSError as error:
        raise Conflict(f"port {port} of the job does not answer on {HOST}: {error.strerror or error}") from error
    try:
        if _listeners_of_gang(home, port) != before:
            raise Conflict(f"port {port} changed hands; try again")
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def _listeners_of_gang(home: Path, port: int) -> set[Listener]:
    """The sockets that listen on the port, all of the gang whose folder is `home`. Raises Conflict."""
    members, listeners = _processes_of(home), _listeners(port)
    if not listeners:
        raise Conflict(f"nothing listens on port {port} yet; see what the program printed with `gavel job logs`")
    if not _all_of(listeners, members):
        raise Conflict(f"port {port} of this machine belongs to a process that is not the job's; use another port")
    return listeners


def _all_of(listeners: Collection[Listener], members: Collection[int]) -> bool:
    return all(pid in members for pid, _, _ in listeners)


def _listeners(port: int) -> set[Listener]:
    sockets = psutil.net_connections(kind="tcp")
    listening = ((each, *each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN)
    return {(each.pid, each.fd, str(host)) for each, host, listened in listening if listened == port}


def _processes_of(home: Path) -> set[int]:
    """The processes that the gang's supervisor has started, and those they have. Raises Conflict if there is none."""
    record = machine.read_object(home / "supervisor.json")
    try:
        pid, began = supervisor_process(record or {})
    except SPOILT:
        pid, began = 0, 0
    if pid == 0 or machine.start_time(pid) != began or not gang_processes.supervises(pid, home):
        raise Conflict("no process of the job runs on this machine now; see `gavel job show`")
    return set(machine.descendants(pid))
