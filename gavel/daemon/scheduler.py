"""The scheduler's loop: stands by until this process leads, ticks the driver while it does, and stands by again."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from gavel.daemon.child import Message, SchedulerState
from gavel.daemon.leading import Candidate, Heart, shown
from gavel.daemon.parts import Parts, report_types
from gavel.errors import GavelError, LeadershipLost, StoreUnavailable
from gavel.mechanism.driver import Driver
from gavel.types import Term

TICKS_KEPT = 10_000  # of a round

log = structlog.get_logger("gavel.scheduler")


class Scheduler:
    """Ticks a driver as long as this process leads. A tick that fails is logged and tried again; the loop goes on.

    A leader that completes no tick for `stall_limit_s`, or may not plan for so long, gives the leadership up and lets
    others lead for the length of a lease; then it opens everything anew, and tries again if nobody else does.

    `tell` is called with a sentence when the leader changes, and with each change of this scheduler's state.
    """

    def __init__(self, parts: Parts, tell: Callable[[Message], None]) -> None:
        self._parts, self._tell = parts, tell
        self._leadership, self._clock, self._settings = parts.store.leadership, parts.clock, parts.settings
        self._candidate = Candidate(self._leadership, lease_s=self._settings.lease_of_leader_s)
        self._stopping = threading.Event()
        self._ticked_at_s = self._completed_at_s = time.monotonic()  # when a tick returned, and when one was completed
        self._stalled = ""  # why no tick is completed
        self._leads_after_s = 0.0  # others may lead until then
        self._tick_s: deque[float] = deque(maxlen=TICKS_KEPT)  # how long those since the last round took
        self._reported: SchedulerState | None = None  # None until it leads or stands by: until then an error ends it

    def stop(self) -> None:
        """End after the tick in progress; safe from any thread."""
        self._stopping.set()
        self._clock.wake()

    def run(self) -> None:
        """Lead whenever no other process does, until `stop`.

        Raises BackendUnavailable, StoreUnavailable or OSError if the first attempt to lead fails; logs later failures.
        """
        while not self._stopping.is_set():
            try:
                self._lead_if_free()
            except (GavelError, OSError):
                if self._reported is None:
                    raise
                log.exception("leadership.given_up")
            self._stopping.wait(self._candidate.look_every_s)

    def _lead_if_free(self) -> None:
        term = self._candidate.try_to_lead() if time.monotonic() >= self._leads_after_s else None
        if term is not None:
            self._lead(term)
        elif self._reported is None:
            self._tell(f"stands by; the scheduler is led by {shown(self._candidate.leader())}")
            self._report(SchedulerState())
        elif self._stalled and self._candidate.leader():  # another process plans now
            self._stalled = ""
            self._report(SchedulerState())

    def _lead(self, term: Term) -> None:
        """Tick until `stop`, or until another process leads."""
        self._ticked_at_s = self._completed_at_s = time.monotonic()
        try:
            with self._until_resigned(), self._heart() as heart, self._parts.open(term) as driver:
                self._tell(f"leads the scheduler, generation {term.generation}")
                self._tick_until_stopped(driver, heart)
        except LeadershipLost as lost:
            log.warning("leadership.lost", generation=term.generation, reason=str(lost))
            self._tell("stands by; another process leads the scheduler")
        finally:
            if self._reported is not None:
                self._report(SchedulerState(stalled=self._stalled))

    def _report(self, state: SchedulerState) -> None:
        if state != self._reported:
            self._reported = state
            self._tell(state)

    def _report_leading(self, driver: Driver) -> None:
        halted, notes = driver.halted or "", self._parts.notes()
        self._report(SchedulerState(leads=True, halted=halted, stalled=self._stalled, notes=notes))

    @contextmanager
    def _until_resigned(self) -> Iterator[None]:
        """Resign at the end of the block, after the backend was closed."""
        try:
            yield
        finally:
            with suppress(StoreUnavailable):  # then the lease runs out
                self._leadership.resign()

    def _heart(self) -> Heart:
        return Heart(
            self._leadership,
            lease_s=self._settings.lease_of_leader_s,
            is_well=self._is_ticking,
            on_lost=self._clock.wake,
        )

    def _tick_until_stopped(self, driver: Driver, heart: Heart) -> None:
        self._report_leading(driver)
        self._tick(driver, heart)
        report_types(self._settings.state_dir, self._parts.discovery, self._tell)
        while not self._stopping.is_set():
            began_s = time.monotonic()
            due_s = self._tick(driver, heart)
            if self._must_give_way(driver):
                return
            self._report_leading(driver)
            # Even if it is woken all the time, it leaves half of the time to the processes that serve and write.
            self._stopping.wait(min(time.monotonic() - began_s, self._settings.tick_s))
            pause_s = self._settings.idle_tick_s if driver.is_idle else self._settings.tick_s
            now_s = self._clock.now_s()
            self._clock.wait(max(now_s + self._settings.tick_s / 10, min(due_s, now_s + pause_s)))

    def _tick(self, driver: Driver, heart: Heart) -> float:
        """Tick once; return when the next tick is due, in seconds of the clock. Raises LeadershipLost."""
        try:
            heart.check()
            before, completed, began_s = driver.newest_round, driver.ticks, time.monotonic()
            due_s = driver.tick()
        except LeadershipLost:
            raise
        except Exception:  # the boundary of the loop: leases go on, and the next tick may succeed
            log.exception("tick.failed")
            return self._clock.now_s() + self._settings.idle_tick_s
        self._ticked_at_s = time.monotonic()
        if driver.ticks > completed and not driver.halted:
            self._completed_at_s, self._stalled = time.monotonic(), ""
        if driver.newest_round == before:
            self._tick_s.append(self._ticked_at_s - began_s)
        else:
            self._log_round(*driver.newest_round)
        return due_s

    def _log_round(self, index: int, spent_s: float) -> None:
        """Log a round with what the ticks since the round before took: the median and the longest."""
        ticks = self._tick_s or [0.0]
        log.info(
            "round.committed",
            round=index,
            seconds=round(spent_s, 3),
            ticks=len(self._tick_s),
            tick_s=round(statistics.median(ticks), 4),
            longest_tick_s=round(max(ticks), 3),
        )
        self._tick_s.clear()

    def _must_give_way(self, driver: Driver) -> bool:
        """Return True, and let others lead for a lease, once no tick was completed for longer than may be."""
        silent_s = time.monotonic() - self._completed_at_s
        if silent_s < max(self._settings.stall_limit_s, 3 * self._settings.idle_tick_s):
            return False
        self._stalled = driver.halted or driver.skipped or "its ticks fail; the log says why"
        self._leads_after_s = time.monotonic() + self._settings.lease_of_leader_s
        log.error("scheduler.stalled", silent_s=round(silent_s, 1), reason=self._stalled)
        self._tell(f"gives the leadership up: no tick was completed for {silent_s:.0f} s ({self._stalled})")
        return True

    def _is_ticking(self) -> bool:
        """Return False once no tick has succeeded for longer than any solve and pause may take."""
        limit_s = self._settings.solve_time_limit_s + 10 * self._settings.idle_tick_s
        return time.monotonic() - self._ticked_at_s < limit_s
