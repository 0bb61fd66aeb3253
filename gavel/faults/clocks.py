"""The clocks of one machine in virtual time: boottime, which may drift, and the wall clock, which may be set."""

from collections.abc import Callable
from dataclasses import dataclass

EPOCH_S = 1_700_000_000.0  # what wall clocks show when a run begins


@dataclass(slots=True)
class MachineClock:
    """Two clocks over the true time `true_s`. `rate` is how fast this machine's seconds pass."""

    true_s: Callable[[], float]
    booted_at_s: float = 0.0
    rate: float = 1.0
    wall_offset_s: float = EPOCH_S

    def boottime_s(self) -> float:
        """Return the seconds since the machine booted."""
        return (self.true_s() - self.booted_at_s) * self.rate

    def wall_s(self) -> float:
        """Return what the wall clock shows."""
        return self.true_s() * self.rate + self.wall_offset_s

    def true_at_s(self, boottime_s: float) -> float:
        """Return the true instant at which `boottime_s` is reached."""
        return self.booted_at_s + boottime_s / self.rate

    def reboot(self) -> None:
        """Begin a new boot now."""
        self.booted_at_s = self.true_s()

    def step(self, by_s: float) -> None:
        """Set the wall clock ahead, or back by negative seconds."""
        self.wall_offset_s += by_s
