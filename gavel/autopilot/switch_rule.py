"""When a better composition is worth a switch: by more than a margin, by more than chance, and not too often."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.autopilot.racing import standard_error
from gavel.types import FloatArray

WINDOW_EPOCHS = 12  # within which switches are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRule:
    """`margin`: the least gain, as a fraction of the incumbent's cost. `errors`: the least gain in standard errors.

    `dwell_s`: least time from one switch to the next; `most`: switches within WINDOW_EPOCHS epochs, so that a workload
    whose epochs are seconds is left the same room as one whose epochs are hours.
    """

    margin: float = 0.02
    errors: float = 1.0
    dwell_s: float = 0.0
    most: int = 4

    def is_clear(self, gain: FloatArray, incumbent_cost: float, preference: float = 0.0) -> bool:
        """Return True if the gain (K futures) is clear. `preference` is added to its mean: what experience says."""
        mean = float(gain.mean()) + preference
        return mean > self.margin * incumbent_cost and mean > self.errors * float(standard_error(gain))

    def refusal(self, switched_at_s: Sequence[float], now_s: float, epoch_s: float) -> str:
        """Return why there may be no switch now, after those at `switched_at_s`, in order; empty if there may be."""
        if switched_at_s and now_s - switched_at_s[-1] < self.dwell_s:
            return f"the last switch was {now_s - switched_at_s[-1]:g} s ago, and a switch stays {self.dwell_s:g} s"
        if sum(now_s - at_s < WINDOW_EPOCHS * epoch_s for at_s in switched_at_s) >= self.most:
            return f"there were {self.most} switches within {WINDOW_EPOCHS} epochs"
        return ""
