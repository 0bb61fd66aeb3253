"""Looks again and again at something that may be slow to answer, in a thread of its own."""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundLook(Generic[T]):
    """Keeps what `read` returned last, at first `last`; `read` raises nothing.

    It is called every `every_s` seconds, when somebody asks. The first call may delay who asks for `first_s`. After
    `silent_s` without an answer `is_silent` is set.
    """

    def __init__(
        self, read: Callable[[], T], last: T, *, every_s: float, first_s: float = 0.0, silent_s: float = inf
    ) -> None:
        self._read, self._last = read, last
        self._every_s, self._first_s, self._silent_s = every_s, first_s, silent_s
        self._running: threading.Thread | None = None
        self._begun_at_s = -inf
        self.is_silent = False

    def newest(self) -> T:
        """Return what the last look that has ended returned, and begin the next one if it is time to."""
        now_s = time.monotonic()
        if self._running is None and now_s - self._begun_at_s >= self._every_s:
            self._running = threading.Thread(target=self._look, name="gavel-look", daemon=True)
            self._running.start()
            self._running.join(self._first_s if self._begun_at_s == -inf else 0.0)
            self._begun_at_s = now_s
        if self._running is not None and not self._running.is_alive():
            self._running = None
        self.is_silent = self._running is not None and now_s - self._begun_at_s > self._silent_s
        return self._last

    def _look(self) -> None:
        self._last = self._read()
