"""This machine's instants, files and processes, as service and supervisor read them. Standard library only."""

import contextlib
import errno
import json
import math
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

READ_BYTES = 1 << 20
LAUNCH_BYTES = 1 << 24  # of one object: a launch has the variables of every rank
READY = "ready.json"  # of a gang: all that its ranks need is on this node
GO = "go.json"  # of a gang: every node of it is ready
JOB_FILES = "job"  # of a gang: the folder that its processes write, GAVEL_GANG_DIR


def _kernel_boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_boottime_source: Callable[[], float] = _kernel_boottime_s
_is_full: Callable[[], bool] = bool  # of a disk, as a simulation says: by itself none is


def boottime_s() -> float:
    """Return the seconds since this machine booted, sleep included: no change of the wall clock moves it."""
    return _boottime_source()


@contextlib.contextmanager
def boottime_from(source: Callable[[], float]) -> Iterator[None]:
    """Let `boottime_s` ask the source while the block lasts, where one process stands for several machines."""
    global _boottime_source
    before, _boottime_source = _boottime_source, source
    try:
        yield
    finally:
        _boottime_source = before


@contextlib.contextmanager
def writes_unless(is_full: Callable[[], bool]) -> Iterator[None]:
    """Let `write_json` fail as on a full disk whenever the source says so while the block lasts."""
    global _is_full
    before, _is_full = _is_full, is_full
    try:
        yield
    finally:
        _is_full = before


def kills_for_memory() -> int:
    """Return how many processes the kernel of this machine has killed for lack of memory; 0 where it does not say."""
    try:
        with open("/proc/vmstat", encoding="ascii") as counters:
            return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def write_json(path: str, value: object) -> None:
    """Replace a file as a whole, readable by this user only: a reader sees the old text or the new, never a part.

    What a job has put beside the file is never opened. Raises OSError.
    """
    if _is_full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}.tmp"
    with open(temporary, "x", encoding="utf-8", opener=_open_private) as file:
        file.write(json.dumps(value))  # json.dump encodes in Python, some ten times as slowly
    try:
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _open_private(path: str, flags: int) -> int:
    """Open a file of this user's; one of root's is also read by whom its folder is shown to (unix_users.py)."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0 and os.fstat(file).st_gid != os.getegid():
        os.fchmod(file, 0o640)
    return file


def open_plain(path: str, folder: int | None = None) -> int:
    """Return a descriptor of a regular file, open for reading. Raises FileNotFoundError for anything else, OSError.

    Whoever may write the file's folder can neither lead the reader elsewhere nor let it wait: no link is followed, and
    a pipe is not waited for. `folder`: the descriptor that the path begins at.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise FileNotFoundError(problem.errno, "not a regular file", path) from problem
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", path)
    return file


def read_plain(path: str, *, limit_bytes: int = READ_BYTES, offset: int = 0) -> bytes:
    """Return at most `limit_bytes` of a regular file from `offset` on. Raises FileNotFoundError, OSError.

    Every file that a job may have written is read by this function, or through `open_plain`.
    """
    file = open_plain(path)
    try:
        return os.pread(file, limit_bytes, offset)
    finally:
        os.close(file)


def read_json(path: str, limit_bytes: int = LAUNCH_BYTES) -> dict[str, Any]:
    """Return the object in a file that is only ever replaced as a whole. Raises OSError, ValueError."""
    value = _parsed(read_plain(path, limit_bytes=limit_bytes))
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def read_object(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the object in a file; None without a plain file or if it holds none (power was lost while it was new)."""
    try:
        return read_json(os.fspath(path), READ_BYTES)
    except (OSError, ValueError):
        return None


def _parsed(text: bytes) -> Any:
    """Return the JSON value. Raises ValueError, for one nested too deeply, too."""
    try:
        return json.loads(text)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def finite(value: object) -> float:
    """Return the number. Raises ValueError if it is no finite number, or one that a float cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} is not a number")
    try:
        number = float(value)
    except OverflowError as problem:
        raise ValueError("not a finite number") from problem
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def append_json(path: str, value: object) -> None:
    """Append one line to a file, in one write, so that several processes may append. Raises OSError."""
    line = json.dumps(value).encode() + b"\n"
    file = _open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK)
    try:
        if os.write(file, line) != len(line):
            raise OSError(f"{path}: a line was cut short, the disk is full")
    finally:
        os.close(file)


def read_from(path: str, offset: int) -> bytes:
    """Return at most READ_BYTES of a file to which others append; b"" if it is missing or no plain file."""
    try:
        return read_plain(path, offset=offset)
    except OSError:
        return b""


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
        value = _parsed(line)
    except ValueError:
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


def has_ended(pid: int, began: int | None) -> bool:
    """Return whether the process that began then has ended; False for one that `/proc` keeps from this process."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return not exists(pid)
    return fields[0] in "ZX" or int(fields[19]) != began


def exists(pid: int) -> bool:
    """Return whether there is a process with this pid, seen in `/proc` or not."""
    try:
        os.kill(pid, 0)
    except OSError as problem:
        return not isinstance(problem, ProcessLookupError)
    return True


def parent_of(pid: int) -> int | None:
    """Return the pid of the process's parent; None if it is gone."""
    try:
        return int(stat_fields(pid)[1])
    except OSError:
        return None


def kill_and_wait(pid: int, *, within_s: float) -> None:
    """Kill a process, which need not be a child, and wait for its end, but no longer than `within_s` seconds."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], within_s)
    except ProcessLookupError:
        return
    finally:
        os.close(process)


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
