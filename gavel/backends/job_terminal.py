"""Connects to the terminal of a job, which its program or one beside it serves (`python -m gavel_runtime.terminal`).

The job names the port; that it is one of its own is checked as for every port. The key is that of its gang, which the
service drew and nobody else has, so that another user of the machine who finds the port is not let in.
"""

import socket
from pathlib import Path

from gavel.backends import machine
from gavel.backends.gang_files import job_files
from gavel.backends.gang_records import SPOILT
from gavel.backends.job_ports import connected
from gavel.errors import Conflict, NotFound
from gavel.types import JobId
from gavel_runtime.terminal_frames import KEY, frame

FILE = "terminal.json"
PORT_MAX = 65_535
NO_TERMINAL = (
    "the job has no terminal: submit one with `gavel interactive --shell`, or start `python -m gavel_runtime.terminal` "
    "in the program of the job"
)


def opened(state_dir: Path, job_id: JobId, generation: int, port: int | None) -> socket.socket:
    """Return a connection to the port of a job whose gang runs here, or to its terminal if `port` is None.

    Raises Conflict, and NotFound without a terminal.
    """
    if port is None:
        return attached(state_dir, job_id, generation)
    return connected(state_dir, job_id, generation, port)


def attached(state_dir: Path, job_id: JobId, generation: int) -> socket.socket:
    """Return a connection to the terminal of a job whose gang runs here. Raises NotFound without one, and Conflict.

    The messages on it are those of `gavel_runtime.terminal_frames`; the key is sent already.
    """
    home = state_dir / "gangs" / job_id / str(generation)
    port = (machine.read_object(job_files(home) / FILE) or {}).get("port")
    if type(port) is not int or not 1 <= port <= PORT_MAX:
        raise NotFound(NO_TERMINAL)
    connection = connected(state_dir, job_id, generation, port)
    try:
        connection.sendall(frame(KEY, _key(home)))
    except OSError as error:
        connection.close()
        raise Conflict(f"the terminal of the job does not answer: {error.strerror or error}") from error
    return connection


def _key(home: Path) -> bytes:
    """Return the key of a gang. Raises OSError."""
    try:
        return str(machine.read_json(str(home / "launch.json"))["ranks"][0]["env"]["GAVEL_GANG_KEY"]).encode()
    except (*SPOILT, IndexError) as problem:
        raise OSError("the files of its gang cannot be read") from problem
