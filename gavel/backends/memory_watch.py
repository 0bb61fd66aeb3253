"""Holds a gang to its memory where the kernel does not. Standard library only: a part of the supervisor."""

import contextlib
import os
from collections.abc import Iterable

from gavel.backends.machine import boottime_s, descendants, stat_fields

LOOK_EVERY_S = 0.5
SLOWNESS = 20  # a look may take a twentieth of the time, however many processes there are
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Looks at the memory of a gang on its node; `limit_bytes` 0: any is allowed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._look_at_boottime_s = 0.0

    def problem(self) -> str:
        """Return in a sentence what the gang of this process takes too much; "" if nothing, or if it is early to look.

        Pages that processes share count once: resident memory, which counts them for each, only says when to look.
        """
        now_s = boottime_s()
        if not self._limit_bytes or now_s < self._look_at_boottime_s:
            return ""
        pids = descendants(os.getpid())
        used = used_bytes(pids) if resident_bytes(pids) > self._limit_bytes else 0
        self._look_at_boottime_s = boottime_s() + max(LOOK_EVERY_S, SLOWNESS * (boottime_s() - now_s))
        if used <= self._limit_bytes:
            return ""
        return (
            f"it had {used / 1e9:.3g} GB of memory, above the limit of {self._limit_bytes / 1e9:.3g} GB that the job"
            f" asked for on this node (memory_bytes); most of it in {_largest(pids)}"
        )


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the resident memory of processes, in bytes; those that have ended count nothing."""
    return sum(_resident(pid) for pid in pids)


def used_bytes(pids: Iterable[int]) -> int:
    """Return the memory of processes in bytes, where each has its part of what several share."""
    return sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(stat_fields(pid)[21]) * PAGE_BYTES
    return 0


def _proportional(pid: int) -> int:
    """The bytes of a process; of one that cannot be looked into those that are in no file, shared or not."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
    except OSError:
        pass
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        _, resident, shared, *_ = map(int, file.read().split())
        return (resident - shared) * PAGE_BYTES
    return 0


def _largest(pids: Iterable[int]) -> str:
    """The name and the pid of the process that has most."""
    pid = max(pids, key=_resident, default=0)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return f"{''.join(each for each in file.read() if each.isprintable())} (pid {pid})"
    return "a process that has ended"
