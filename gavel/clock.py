"""The system's clock, and one that tests and the simulator move by hand."""

import threading
import time


class SystemClock:
    """Wall time; `wait` ends early when somebody calls `wake`."""

    def __init__(self) -> None:
        self._wake = threading.Event()

    def now_s(self) -> float:
        """Return the seconds since the Unix epoch."""
        return time.time()

    def wait(self, until_s: float) -> None:
        """Return at `until_s`, or as soon as `wake` was called."""
        if self._wake.wait(timeout=max(0.0, until_s - self.now_s())):
            self._wake.clear()

    def wake(self) -> None:
        """End the wait in progress, or the next one."""
        self._wake.set()


class ManualClock:
    """A clock that stands still until `wait` or `advance` moves it, never backwards."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        """Return the seconds since the start."""
        return self._now_s

    def wait(self, until_s: float) -> None:
        """Jump to `until_s`."""
        self._now_s = max(self._now_s, until_s)

    def advance(self, seconds: float) -> None:
        """Jump ahead."""
        assert seconds >= 0, "time does not run backwards"
        self._now_s += seconds

    def wake(self) -> None:
        """Do nothing: nobody waits on a manual clock."""
