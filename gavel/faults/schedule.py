"""Virtual time: what happens next, in an order that depends on nothing but the seed."""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush

Act = Callable[[], None]


class Schedule:
    """The events that are to come. `now_s` is the true time; every event leaves a line in the trace."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.now_s = 0.0
        self.events = 0
        self.lines: list[str] = []
        self._keeps_lines = keeps_lines
        self._coming: list[tuple[float, int, Act]] = []
        self._sequence = 0
        self._digest = hashlib.sha256()

    def true_s(self) -> float:
        """Return the true time."""
        return self.now_s

    def at(self, at_s: float, act: Act) -> None:
        """Let `act` happen at the instant, or now if that has passed."""
        self._sequence += 1
        heappush(self._coming, (max(at_s, self.now_s), self._sequence, act))

    def after(self, seconds: float, act: Act) -> None:
        """Let `act` happen so many seconds from now."""
        self.at(self.now_s + seconds, act)

    def has_more(self, until_s: float) -> bool:
        """Return True if something happens until then."""
        return bool(self._coming) and self._coming[0][0] <= until_s

    def step(self) -> None:
        """Let the next event happen."""
        at_s, _, act = heappop(self._coming)
        self.now_s = max(self.now_s, at_s)
        self.events += 1
        act()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        text = f"{self.now_s:.6f} {line}"
        self._digest.update(text.encode())
        if self._keeps_lines:
            self.lines.append(text)

    def digest(self) -> str:
        """Return the hash of the trace so far."""
        return self._digest.hexdigest()
