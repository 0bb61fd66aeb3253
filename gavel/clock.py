"""The system's clock, and one that tests and the simulator move by hand."""

import threading
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("gavel.clock")

STEP_S = 1.0  # by less a wall clock is only kept right
HELD_S = 86_400.0  # a clock that was set back by more than this was wrong before
SLOWED = 0.95  # how fast time goes while it waits for a wall clock that was set back


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """Wall time in order; `wait` ends early when somebody calls `wake`.

    When the wall clock is set ahead, or the machine starts with a wrong one, the time follows at once. When it is set
    back by up to a day, the time goes on a little slower until the wall clock has caught up, so that what is recorded
    stays in order; when it is set back by more, the time follows. A suspended machine is no step. `steps` counts how
    often the wall clock was set by a second or more; each is a line of the log.
    """

    def __init__(self, wall_s: Callable[[], float] = time.time, boottime_s: Callable[[], float] = _boottime_s) -> None:
        self._wall_s, self._boottime_s = wall_s, boottime_s
        self._lock = threading.Lock()
        self._wall_then_s, self._boottime_then_s = wall_s(), boottime_s()
        self._then_s = self._wall_then_s
        self._wake = threading.Event()
        self.steps = 0

    def now_s(self) -> float:
        """Return the seconds since the Unix epoch. Safe from any thread."""
        with self._lock:
            wall_s, boottime_s = self._wall_s(), self._boottime_s()
            elapsed_s = max(0.0, boottime_s - self._boottime_then_s)
            self._note_step(wall_s - self._wall_then_s - elapsed_s)
            self._wall_then_s, self._boottime_then_s = wall_s, boottime_s
            ahead_s = self._then_s + elapsed_s - wall_s
            is_held = 0.0 < ahead_s <= HELD_S
            self._then_s = max(wall_s, self._then_s + SLOWED * elapsed_s) if is_held else wall_s
            return self._then_s

    def steady_s(self) -> float:
        """Return the seconds since this machine booted, sleep included."""
        return self._boottime_s()

    def _note_step(self, by_s: float) -> None:
        if abs(by_s) >= STEP_S:
            self.steps += 1
            log.warning("clock.stepped", by_s=round(by_s, 3))

    def wait(self, until_s: float) -> None:
        """Return at `until_s`, or as soon as `wake` was called."""
        if self._wake.wait(timeout=max(0.0, until_s - self.now_s())):
            self._wake.clear()

    def wake(self) -> None:
        """End the wait in progress, or the next one."""
        self._wake.set()


class ManualClock:
    """A clock that stands still until `wait` or `advance` moves it; only `step` moves it backwards, too."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._ahead_s = 0.0
        self.steps = 0

    def now_s(self) -> float:
        """Return the seconds since the start."""
        return self._now_s

    def steady_s(self) -> float:
        """Return the seconds since the start without what `step` has set the clock ahead."""
        return self._now_s - self._ahead_s

    def wait(self, until_s: float) -> None:
        """Jump to `until_s`."""
        self._now_s = max(self._now_s, until_s)

    def advance(self, seconds: float) -> None:
        """Jump ahead."""
        assert seconds >= 0, "time does not run backwards"
        self._now_s += seconds

    def step(self, seconds: float) -> None:
        """Jump as a wall clock that is set: ahead, or back by negative seconds."""
        self._now_s += seconds
        self._ahead_s += seconds
        self.steps += 1

    def wake(self) -> None:
        """Do nothing: nobody waits on a manual clock."""
