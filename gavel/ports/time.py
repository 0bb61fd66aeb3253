"""The port of time."""

from typing import Protocol


class Clock(Protocol):
    """Time, real or virtual. `steps` counts how often it was set by a second or more."""

    steps: int

    def now_s(self) -> float:
        """Return the seconds since the Unix epoch (simulated: since the start)."""

    def steady_s(self) -> float:
        """Return seconds that go on whatever the clock is set to, until the machine starts again."""

    def wait(self, until_s: float) -> None:
        """Return at `until_s`, or earlier when `wake` is called."""

    def wake(self) -> None:
        """End the wait in progress, or the next one. Safe from any thread."""
