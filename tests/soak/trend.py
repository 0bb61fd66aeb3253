"""Does a quantity grow? The slope of its samples after a warm-up, with an interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import theilslopes

WARM_UP_FRACTION = 1 / 3  # of the samples: caches fill, and the first jobs have not ended
CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Growth over the whole of the samples after the warm-up, in units of the quantity: `growth` in [`low`, `high`]."""

    growth: float
    low: float
    high: float
    level: float  # the median

    def __str__(self) -> str:
        return f"{self.growth:+.1f} [{self.low:+.1f}, {self.high:+.1f}] at {self.level:.1f}"


def trend(values: Sequence[float]) -> Trend:
    """The slope of Theil and Sen over samples at equal distances: the median of the slopes of all pairs.

    One sample in four may be far off without an effect, so a rotated log or a collected heap is not growth.
    """
    kept = np.asarray(values[int(len(values) * WARM_UP_FRACTION) :], dtype=float)
    assert len(kept) >= 8, "too few samples for an interval"
    slope, _, low, high = theilslopes(kept, alpha=CONFIDENCE)
    steps = len(kept) - 1
    return Trend(growth=slope * steps, low=low * steps, high=high * steps, level=float(np.median(kept)))


def growing(samples: Sequence[Mapping[str, float]], allowed: Mapping[str, float]) -> dict[str, str]:
    """The quantities that have grown for certain by more than `allowed`, a fraction of their level, with their trend.

    For each the whole interval must be above what is allowed.
    """
    trends = {name: trend([sample[name] for sample in samples]) for name in allowed}
    return {name: str(each) for name, each in trends.items() if each.low > max(1.0, allowed[name] * each.level)}
