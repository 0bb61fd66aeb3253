"""The processes of a gang on this machine, found by what the kernel says of them, not by what files of the gang say."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gavel.backends import control_groups, machine

SUPERVISOR = b"/supervisor.py"
VARIABLE = b"GAVEL_GANG_DIR="
JOB_FILES = b"/" + machine.JOB_FILES.encode()


def supervises(pid: int, home: Path) -> bool:
    """Return whether the process is the supervisor of the gang whose folder is `home`."""
    return str(home) in _homes(pid)


def homes_below(gangs: Path) -> set[str]:
    """Return the folders below `gangs` whose gangs have a process on this machine; one look at all processes."""
    return {home for homes in _homes_of_all(gangs).values() for home in homes if home.startswith(f"{gangs}/")}


def kill_all(home: Path) -> bool:
    """Kill the gang's supervisor, all below it, and processes that its ranks left; return True while there was one.

    What has left neither its supervisor's descendants nor the environment of its rank is seen by its control group.
    """
    members = {pid for pid, homes in _homes_of_all(home.parents[1]).items() if str(home) in homes}
    children = machine.children_of_all() if members else {}
    for pid in members | {below for root in members for below in machine.descendants(root, children)}:
        with suppress(ProcessLookupError, PermissionError):  # it ended, or became another user's
            os.kill(pid, signal.SIGKILL)
    control_groups.kill_groups(str(home), members)
    if not members:
        control_groups.remove_groups(control_groups.prefix_of(str(home)))
    return bool(members)


def end_all(gangs: Path, homes: Iterable[str]) -> None:
    """Kill what is left of gangs that nobody adopts, whose folders are `homes`, and remove empty groups of any."""
    for home in homes:
        kill_all(Path(home))
    control_groups.remove_left(str(gangs))


def has_left(home: Path, supervisor: int) -> bool:
    """Return whether a supervisor that has ended did not clean up after itself, as one that was killed."""
    return control_groups.has_group(str(home), supervisor)


def _homes_of_all(gangs: Path) -> dict[int, set[str]]:
    pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    return {pid: homes for pid in pids if (homes := {*_homes(pid), control_groups.gang_of(pid, str(gangs))} - {""})}


def _homes(pid: int) -> set[str]:
    """Return the folders of gangs that a process supervises, or was started for as a rank, a task or what these start.

    None for a process that is gone, or another user's.
    """
    homes: set[bytes] = set()
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        homes.update(words if any(word.endswith(SUPERVISOR) for word in words) else ())
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(VARIABLE):
                homes.add(variable.removeprefix(VARIABLE).removesuffix(JOB_FILES))
    return {os.fsdecode(home) for home in homes}
