"""This machine's instants, files and processes, as service and supervisor read them. Standard library only."""

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

READ_BYTES = 1 << 20
READY = "ready.json"  # of a gang: all that its ranks need is on this node
GO = "go.json"  # of a gang: every node of it is ready


def boottime_s() -> float:
    """Return the seconds since this machine booted, sleep included: no change of the wall clock moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kills_for_memory() -> int:
    """Return how many processes the kernel of this machine has killed for lack of memory; 0 where it does not say."""
    try:
        with open("/proc/vmstat", encoding="ascii") as counters:
            return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def write_json(path: str, value: object) -> None:
    """Replace a file as a whole, readable by this user only: a reader sees the old text or the new, never a part."""
    with open(path + ".tmp", "w", encoding="utf-8", opener=_open_private) as file:
        json.dump(value, file)
    os.rename(path + ".tmp", path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def read_json(path: str) -> dict[str, Any]:
    """Return the object in a file that is only ever replaced as a whole."""
    with open(path, encoding="utf-8") as file:
        value: dict[str, Any] = json.load(file)
    return value


def append_json(path: str, value: object) -> None:
    """Append one line to a file, in one write, so that several processes may append. Raises OSError."""
    line = json.dumps(value).encode() + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        if os.write(file, line) != len(line):
            raise OSError(f"{path}: a line was cut short, the disk is full")
    finally:
        os.close(file)


def read_from(path: str, offset: int) -> bytes:
    """Return at most READ_BYTES of a file to which others append; b"" if it is missing or no plain file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(file, READ_BYTES, offset) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


class Lines:
    """Reads JSON objects from a file of lines to which others append; skips incomplete lines and other values."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the objects that came since the last call, from at most READ_BYTES."""
        text = read_from(self._path, self._offset)
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == READ_BYTES:
            whole = len(text)  # no line that anybody needs
        self._offset += whole
        return [value for value in map(_object, text[:whole].splitlines()) if value is not None]

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Return all objects that were not read before."""
        while lines := self.read():
            yield from lines


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def boot_id() -> str:
    """Return an id that changes with each boot of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from field 3 (state) on. Raises OSError if there is no such process.

    The process name before field 3 may hold spaces.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """Return when the process began, in ticks since boot; None if it is gone or a zombie."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def children_of_all() -> dict[int, list[int]]:
    """Return the pids of the children of each process of this machine."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                children.setdefault(int(stat_fields(int(name))[1]), []).append(int(name))
    return children


def descendants(root: int, children: Mapping[int, list[int]] | None = None) -> list[int]:
    """Return the pids of all processes below `root`; `children` are those of each process, if they were read before."""
    children = children_of_all() if children is None else children
    pids = [root]
    for pid in pids:
        pids.extend(children.get(pid, ()))
    return pids[1:]
