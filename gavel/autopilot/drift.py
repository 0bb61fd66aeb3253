"""Whether a series of numbers has changed its mean: the test of Page and Hinkley, upwards and downwards."""

from dataclasses import dataclass, replace

TOLERANCE = 0.05  # a change of the mean that is none
THRESHOLD = 1.5  # of the summed excess at which the alarm is raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """`up` and `down` are summed excesses over the mean, less their least values so far."""

    count: int = 0
    mean: float = 0.0
    up: float = 0.0
    down: float = 0.0

    def followed_by(self, value: float) -> "Drift":
        """Return the test after one more value. After an alarm a new one begins."""
        before = Drift() if self.is_alarm else self
        mean = before.mean + (value - before.mean) / (before.count + 1)
        return replace(
            before,
            count=before.count + 1,
            mean=mean,
            up=max(0.0, before.up + value - mean - TOLERANCE),
            down=max(0.0, before.down + mean - value - TOLERANCE),
        )

    @property
    def is_alarm(self) -> bool:
        """Return True if the mean has changed."""
        return max(self.up, self.down) > THRESHOLD
