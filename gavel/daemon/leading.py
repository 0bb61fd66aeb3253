"""Standing by, and leading while one lives: the side of a process in the database's row of leadership.

1. Whoever stands by looks at the row. It leads next when nobody does, when the leader was a process of this machine
that is gone, or when the leader's beat has stood still for a lease on the clock of whoever looks.
2. While it leads, a heart beats from a thread of its own, as long as the loop ticks.
3. A leader that was asleep finds out by its next beat, tick or commit, whichever is first, and steps down.
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
from gavel.store.leadership import Leadership, Standing
from gavel.types import Term

log = structlog.get_logger("gavel.leadership")

BEATS_A_LEASE = 4
LOOKS_A_LEASE = 8
LOOK_EVERY_S = 1.0  # at the most


def own_name() -> str:
    """This process as `HOST:PID:START:PLACE`: a place is a boot of a machine and a world of process ids on it."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{machine.start_time(pid)}:{_place()}"


def is_gone(holder: str) -> bool:
    """True if that process was of this place and has ended; False if it lives, or nobody here can know."""
    _, pid, start, place = holder.rsplit(":", 3)
    return place == _place() and machine.start_time(int(pid)) != int(start)


def shown(holder: str) -> str:
    """A holder for people: `HOST, pid PID`."""
    if not holder:
        return "nobody yet"
    host, pid, _, _ = holder.rsplit(":", 3)
    return f"{host}, pid {pid}"


def _place() -> str:
    return sha256((machine.boot_id() + os.readlink("/proc/self/ns/pid")).encode()).hexdigest()[:12]


class Candidate:
    """Watches who leads. Safe from any thread. `monotonic_s` is the clock by which a leader's silence is measured."""

    def __init__(
        self, leadership: Leadership, *, lease_s: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._leadership = leadership
        self._lease_s = lease_s
        self._monotonic_s = monotonic_s
        self._name = own_name()
        self._lock = threading.Lock()
        self._seen = Standing()
        self._changed_at_s = monotonic_s()

    @property
    def look_every_s(self) -> float:
        """How often to look while standing by."""
        return min(LOOK_EVERY_S, self._lease_s / LOOKS_A_LEASE)

    def leader(self) -> str:
        """Who leads and lives, as of now: its name; empty: nobody. Raises StoreUnavailable."""
        standing = self._look()
        return "" if self._is_free(standing) else standing.holder

    def try_to_lead(self) -> Term | None:
        """The term that begins now; None: another process leads. Raises StoreUnavailable."""
        standing = self._look()
        if not self._is_free(standing):
            return None
        term = self._leadership.take(self._name, lease_s=self._lease_s, seen=standing)
        if term is not None:
            log.info("leadership.taken", generation=term.generation, holder=self._name, before=standing.holder)
        return term

    def _look(self) -> Standing:
        now = self._leadership.standing()
        with self._lock:
            if now != self._seen:
                self._seen, self._changed_at_s = now, self._monotonic_s()
        return now

    def _is_free(self, standing: Standing) -> bool:
        silent_s = self._monotonic_s() - self._changed_at_s
        return not standing.holder or is_gone(standing.holder) or silent_s >= standing.lease_s


class Heart:
    """Beats while the process leads and `is_well()`. As a context manager: until the end of the block."""

    def __init__(
        self, leadership: Leadership, *, lease_s: float, is_well: Callable[[], bool], on_lost: Callable[[], None]
    ) -> None:
        self._leadership = leadership
        self._lease_s = lease_s
        self._is_well = is_well
        self._on_lost = on_lost
        self._beaten_at_s = time.monotonic()
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
        """Before each act: raises LeadershipLost if another process leads, StoreUnavailable if nobody can tell."""
        if self._lost is not None:
            raise self._lost
        if time.monotonic() - self._beaten_at_s >= self._lease_s:  # asleep for a while: who knows
            self._beat()

    def _beat(self) -> None:
        self._leadership.beat()
        self._beaten_at_s = time.monotonic()

    def _run(self) -> None:
        while self._lost is None and not self._stopping.wait(self._lease_s / BEATS_A_LEASE):
            try:
                if self._is_well():
                    self._beat()
            except StoreUnavailable as error:  # whoever stands by cannot write either, or leads from now on
                log.warning("leadership.beat_failed", error=str(error))
            except LeadershipLost as lost:
                self._lost = lost
                self._on_lost()
