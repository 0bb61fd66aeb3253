"""Leader election over one row of the database: how a process stands by, takes the leadership, and loses it.

1. A process that stands by reads the row. It takes the leadership when nobody leads, when the leader was a process of
this machine that has ended, or when the row has not changed for one lease on the reader's own clock.
2. While a process leads, a thread of its own renews the row (a heartbeat) as long as the scheduler's loop ticks.
3. A silent leader of this machine that stopped in the middle of a write would keep everybody from writing: the process
that takes over kills it first.
4. A leader that did not run for a while (a suspended machine) notices at its next heartbeat, tick or commit, whichever
comes first, and steps down.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from types import TracebackType
from typing import Self

import structlog

from gavel.backends import machine
from gavel.errors import LeadershipLost, StoreUnavailable
from gavel.store.leadership_rules import Election, LeaderRow
from gavel.types import Term

log = structlog.get_logger("gavel.leadership")

BEATS_A_LEASE = 4
LOOKS_A_LEASE = 8
LOOK_EVERY_S = 1.0  # at the most
BLOCKED_LOOKS, BLOCKED_LOOK_S = 5, 0.05
KILL_LIMIT_S = 5.0


def own_name() -> str:
    """Return this process as `HOST:PID:START:PLACE`; the place identifies the machine's boot and its pid namespace."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{machine.start_time(pid)}:{_place()}"


def is_gone(holder: str) -> bool:
    """Return whether the holder is a process of this place that has ended; False if it runs or is of another place."""
    _, pid, start, place = holder.rsplit(":", 3)
    return place == _place() and machine.has_ended(int(pid), int(start))


def process_of(holder: str) -> int | None:
    """Return the pid of a holder that runs in this place; None for one that has ended or is of another place."""
    _, pid, _, place = holder.rsplit(":", 3)
    return int(pid) if place == _place() and not is_gone(holder) else None


def shown(holder: str) -> str:
    """Return a holder as people read it: `HOST, pid PID`."""
    if not holder:
        return "nobody yet"
    host, pid, _, _ = holder.rsplit(":", 3)
    return f"{host}, pid {pid}"


def _place() -> str:
    return sha256((machine.boot_id() + os.readlink("/proc/self/ns/pid")).encode()).hexdigest()[:12]


class Candidate:
    """Watches who leads. Safe from any thread. `monotonic_s` is the clock that measures how long a leader is silent.

    `name` is this process's, by default `own_name()`; `is_gone` says of another's that its process has ended.
    """

    def __init__(
        self,
        leadership: Election,
        *,
        lease_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
        name: str = "",
        is_gone: Callable[[str], bool] = is_gone,
    ) -> None:
        self._leadership = leadership
        self._lease_s = lease_s
        self._monotonic_s = monotonic_s
        self._name = name or own_name()
        self._is_gone = is_gone
        self._lock = threading.Lock()
        self._seen = LeaderRow()
        self._changed_at_s = monotonic_s()

    @property
    def look_every_s(self) -> float:
        """Seconds between two looks at the row while standing by."""
        return min(LOOK_EVERY_S, self._lease_s / LOOKS_A_LEASE)

    def leader(self) -> str:
        """Return the name of the process that leads now; empty if none does. Raises StoreUnavailable."""
        current = self._look()
        return "" if self._is_free(current) else current.holder

    def try_to_lead(self) -> Term | None:
        """Take the leadership; return its term, or None if another process leads. Raises StoreUnavailable."""
        current = self._look()
        if not self._is_free(current):
            return None
        if current.holder:
            self._end_blocking(current.holder)
        term = self._leadership.take(self._name, lease_s=self._lease_s, seen=current)
        if term is not None:
            log.info("leadership.taken", generation=term.generation, holder=self._name, before=current.holder)
        return term

    def _end_blocking(self, holder: str) -> None:
        """Kill a silent leader of this machine, or the service that it is the child of, that is stopped in a write."""
        leader = process_of(holder)
        blocking = self._leadership.blocked_by()
        if leader is None or blocking is None or blocking not in (leader, machine.parent_of(leader)):
            return
        for _ in range(BLOCKED_LOOKS):  # a write in progress is over in milliseconds
            time.sleep(BLOCKED_LOOK_S)
            if self._leadership.blocked_by() != blocking:
                return
        log.error("leadership.killed", holder=holder, pid=blocking, reason="it was silent in the middle of a write")
        machine.kill_and_wait(blocking, within_s=KILL_LIMIT_S)

    def _look(self) -> LeaderRow:
        now = self._leadership.current()
        with self._lock:
            if now != self._seen:
                self._seen, self._changed_at_s = now, self._monotonic_s()
        return now

    def _is_free(self, current: LeaderRow) -> bool:
        silent_s = self._monotonic_s() - self._changed_at_s
        return not current.holder or self._is_gone(current.holder) or silent_s >= current.lease_s


class Heart:
    """Renews the leadership while `is_well()` is true; a context manager that stops at the end of the block."""

    def __init__(
        self,
        leadership: Election,
        *,
        lease_s: float,
        is_well: Callable[[], bool],
        on_lost: Callable[[], None],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leadership = leadership
        self._monotonic_s = monotonic_s
        self._lease_s = lease_s
        self._is_well = is_well
        self._on_lost = on_lost
        self._beaten_at_s = monotonic_s()
        self._lost: LeadershipLost | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Raise LeadershipLost if another process leads, StoreUnavailable if the row cannot be read."""
        if self._lost is not None:
            raise self._lost
        if self._monotonic_s() - self._beaten_at_s >= self._lease_s:  # after a pause this long another process may lead
            self._beat()

    def _beat(self) -> None:
        self._leadership.beat()
        self._beaten_at_s = self._monotonic_s()

    def turn(self) -> None:
        """Beat once if the loop is well; what its thread does BEATS_A_LEASE times a lease."""
        try:
            if self._is_well():
                self._beat()
        except StoreUnavailable as error:  # either no process can write, or another one leads soon
            log.warning("leadership.beat_failed", error=str(error))
        except LeadershipLost as lost:
            self._lost = lost
            self._on_lost()

    def _run(self) -> None:
        while self._lost is None and not self._stopping.wait(self._lease_s / BEATS_A_LEASE):
            self.turn()
