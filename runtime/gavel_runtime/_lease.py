"""The lease of a gang, by CLOCK_BOOTTIME, which changes of the wall clock do not affect."""

import json
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READ_EVERY_S = 0.05
WARM = "GAVEL_WARM"
_READ_BYTES = 1 << 16
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_s() -> float:
    """Return the seconds since this machine started, sleep included (without such a clock: its monotonic clock)."""
    return time.clock_gettime(_CLOCK)


_began_boottime_s: list[float] = []  # of a process that was started before its lease
_waiting = threading.Lock()


def wait_for_lease() -> None:
    """Return once this process has a lease, with the environment of that lease; at once if it was not started early.

    The supervisor writes the environment to standard input when the lease begins (docs/gang-protocol.md, warm starts).
    """
    with _waiting:
        if os.environ.get(WARM):
            environment = json.loads(_read_all(0))
            os.environ.clear()
            os.environ.update(environment)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _began_boottime_s.append(boottime_s())


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, _READ_BYTES):
        parts.append(part)
    if not parts:  # the supervisor is gone
        os._exit(1)
    return b"".join(parts)


def running_s(now_s: float) -> float:
    """Return the seconds for which this process has run in its lease at `now_s`, a boottime.

    That is from its start, or from the end of `wait_for_lease`; 0 where the system does not say. /proc/self/stat has
    the start as field 22, in ticks since the start of the machine (man 5 proc).
    """
    if _began_boottime_s:
        return max(0.0, now_s - _began_boottime_s[-1])
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, now_s - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run until an instant; `stop` ends it at once. `save_asked_s`: which checkpoint is asked for last."""

    expires_boottime_s: float
    stop: bool = False
    save_asked_s: float = 0.0

    def has_room_for(self, duration_s: float, now_s: float) -> bool:
        """Return whether the lease lasts for `duration_s` seconds from `now_s`."""
        return not self.stop and now_s < self.expires_boottime_s and now_s + duration_s <= self.expires_boottime_s


def parse_lease(text: str) -> Lease | None:
    """Return the lease of a lease.json; None if the text is incomplete or no lease."""
    try:
        fields = json.loads(text)
        expires_boottime_s, stop = float(fields["expires_boottime_s"]), fields["stop"]
        save_asked_s = float(fields.get("save_asked_s", 0.0))
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError):
        return None
    valid = isinstance(stop, bool) and math.isfinite(expires_boottime_s) and math.isfinite(save_asked_s)
    return Lease(expires_boottime_s, stop, save_asked_s) if valid else None


class LeaseFile:
    """The newest lease: `first` until lease.json exists, then the last one that could be read.

    While the file cannot be read, keeping the last lease is safe: it ends by itself.
    """

    def __init__(self, path: Path | None, first: Lease, clock: Callable[[], float] = boottime_s) -> None:
        self._path = path
        self._lease = first
        self._clock = clock
        self._read_at_s = -math.inf

    @property
    def save_asked_s(self) -> float:
        """Return which checkpoint the service has asked for last, as of the last read; 0: none."""
        return self._lease.save_asked_s

    def has_room_for(self, duration_s: float) -> bool:
        """Return whether the lease lasts that long. Reads the file at most every 50 ms, and always before a False."""
        now_s = self._clock()
        if now_s - self._read_at_s >= READ_EVERY_S or not self._lease.has_room_for(duration_s, now_s):
            self._read(now_s)
        return self._lease.has_room_for(duration_s, now_s)

    def _read(self, now_s: float) -> None:
        self._read_at_s = now_s
        if self._path is None:
            return
        try:
            text = self._path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return
        self._lease = parse_lease(text) or self._lease
