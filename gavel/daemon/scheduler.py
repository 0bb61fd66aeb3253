"""The scheduler's thread: stands by until this process leads, ticks the driver while it does, and stands by again."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress

import structlog

from gavel.config import Settings
from gavel.daemon.leading import Candidate, Heart, shown
from gavel.errors import GavelError, LeadershipLost, StoreUnavailable
from gavel.mechanism.driver import Driver
from gavel.ports import Clock
from gavel.store.leadership import Leadership
from gavel.types import Term

log = structlog.get_logger("gavel.scheduler")

SHUTDOWN_LIMIT_S = 10.0

OpenTerm = Callable[[Term], AbstractContextManager[Driver]]


class Scheduler(threading.Thread):
    """Ticks a driver made by `open_term` as long as this process leads.

    A tick that fails is logged and tried again, never the end of the loop. `after_first` is called once the cluster is
    known; `announce` tells whoever runs the service who leads.
    """

    def __init__(
        self,
        leadership: Leadership,
        open_term: OpenTerm,
        *,
        clock: Clock,
        settings: Settings,
        after_first: Callable[[], None],
        announce: Callable[[str], None],
    ) -> None:
        super().__init__(name="scheduler", daemon=True)
        self._leadership, self._open_term = leadership, open_term
        self._clock, self._settings = clock, settings
        self._after_first, self._announce = after_first, announce
        self._candidate = Candidate(leadership, lease_s=settings.lease_of_leader_s)
        self._settled: Future[None] = Future()  # it leads or stands by, or cannot
        self._stopping = threading.Event()
        self._ticked_at_s = time.monotonic()
        self._driver: Driver | None = None  # while this process leads

    # --- from other threads -------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether it is this process that plans."""
        return self._driver is not None

    def is_alive_and_ticking(self) -> bool:
        """Of whichever process leads: False once it has been silent for too long, or this one has halted."""
        driver = self._driver
        if driver is None:
            return self.is_alive() and bool(self._candidate.leader())
        return self.is_alive() and self._is_ticking() and driver.halted is None

    def begin(self) -> None:
        """Start, and return once this process leads or stands by.

        Raises what kept it from leading though nobody does: BackendUnavailable, StoreUnavailable, OSError.
        """
        self.start()
        self._settled.result()

    def stop(self) -> None:
        """End after the tick in progress; whoever stands by leads at once."""
        self._stopping.set()
        self._clock.wake()
        self.join(SHUTDOWN_LIMIT_S)

    # --- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Lead whenever it may, until `stop`."""
        while not self._stopping.is_set():
            try:
                self._lead_if_free()
            except (GavelError, OSError) as problem:
                if not self._settled.done():
                    self._settled.set_exception(problem)
                    return
                log.exception("leadership.given_up")
            self._stopping.wait(self._candidate.look_every_s)

    def _lead_if_free(self) -> None:
        term = self._candidate.try_to_lead()
        if term is not None:
            self._lead(term)
        elif not self._settled.done():
            self._announce(f"stands by; the scheduler is led by {shown(self._candidate.leader())}")
            self._settled.set_result(None)

    def _lead(self, term: Term) -> None:
        """Until stopped, or until another process leads."""
        self._ticked_at_s = time.monotonic()
        try:
            with self._until_resigned(), self._heart() as heart, self._open_term(term) as driver:
                self._driver = driver
                self._announce(f"leads the scheduler, generation {term.generation}")
                if not self._settled.done():
                    self._settled.set_result(None)
                self._tick_until_stopped(driver, heart)
        except LeadershipLost as lost:
            log.warning("leadership.lost", generation=term.generation, reason=str(lost))
            self._announce("stands by; another process leads the scheduler")
        finally:
            self._driver = None

    @contextmanager
    def _until_resigned(self) -> Iterator[None]:
        """Resign last, when the backend is closed."""
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
        self._tick(driver, heart)
        self._after_first()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            due_s = self._tick(driver, heart)
            # However often it is woken, half of the time is left to the requests that this process serves.
            self._stopping.wait(min(time.monotonic() - began_s, self._settings.tick_s))
            pause_s = self._settings.idle_tick_s if driver.is_idle else self._settings.tick_s
            now_s = self._clock.now_s()
            self._clock.wait(max(now_s + self._settings.tick_s / 10, min(due_s, now_s + pause_s)))

    def _tick(self, driver: Driver, heart: Heart) -> float:
        """When the next tick is due. Raises LeadershipLost."""
        try:
            heart.check()
            before, due_s = driver.newest_round, driver.tick()
        except LeadershipLost:
            raise
        except Exception:  # the boundary of the thread: whatever it was, leases go on and the next tick may do
            log.exception("tick.failed")
            return self._clock.now_s() + self._settings.idle_tick_s
        self._ticked_at_s = time.monotonic()
        if driver.newest_round != before:
            index, spent_s = driver.newest_round
            log.info("round.committed", round=index, seconds=round(spent_s, 3))
        return due_s

    def _is_ticking(self) -> bool:
        """False once no tick has succeeded for longer than any solve and pause may take."""
        limit_s = self._settings.solve_time_limit_s + 10 * self._settings.idle_tick_s
        return time.monotonic() - self._ticked_at_s < limit_s
