"""Which GPUs processes that are not of Gavel's gangs use: no gang is started there, for lack of memory or speed."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from gavel.backends.gpus import LEAST_MIB, held
from gavel.backends.machine import stat_fields

QUERY = ("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits")
ANSWER_LIMIT_S = 30.0
SUPERVISOR = b"gavel/backends/supervisor.py"


def foreign_processes(listed: str, is_ours: Callable[[int], bool]) -> dict[str, str]:
    """Return what is to be said of each GPU (by UUID) that others use, of the answer to `QUERY`."""
    used: dict[str, str] = {}
    for line in listed.splitlines():
        cells = [cell.strip() for cell in line.split(",", 3)]
        if len(cells) == 4 and cells[1].isdigit() and cells[2].isdigit() and int(cells[2]) >= LEAST_MIB:
            uuid, pid, mib, program = cells
            if not is_ours(int(pid)):
                used[uuid] = held(int(pid), program, int(mib))
    return used


def now() -> dict[str, str]:
    """Return the same of this machine; nothing where nvidia-smi does not tell."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, *QUERY],
            capture_output=True,
            text=True,
            check=True,
            timeout=ANSWER_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return foreign_processes(done.stdout, is_ours)


def is_ours(pid: int) -> bool:
    """Return True for a process below a supervisor of a gang, and for one that is gone or cannot be looked at here."""
    lines = list(_command_lines(pid))
    return not lines or any(SUPERVISOR in line for line in lines)


def _command_lines(pid: int) -> Iterator[bytes]:
    """Yield the command line of the process and of each above it."""
    with suppress(OSError):  # it ended while we looked, or is of another container
        while pid > 1:
            yield Path(f"/proc/{pid}/cmdline").read_bytes()
            pid = int(stat_fields(pid)[1])
