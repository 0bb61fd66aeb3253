"""What was measured of one (job kind, scale factor, accelerator type): a robust running mean of log(steps/s).

* A report that lies far off counts as one that lies `CLIP` deviations off: a straggler or a restart moves little.
* `CHANGE_REPORTS` reports in a row that agree with each other and not with the mean are a change point: the mean
  starts anew from them.
* A rate over `IMPOSSIBLE` times a well-known one is counted and not believed.
* What policies see lies on a 1 % grid and moves only once the mean has left its step: equal jobs stay equal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.types import FloatArray

REPORT_ERROR = 0.05  # of log(steps/s) of a long report, before anything is known
SHORT_REPORT_S = 0.5  # a report of so many seconds has twice the variance of a long one
SHORTEST_S = 0.05  # a shorter window says more of the clock than of the job
ERROR_PRIOR_REPORTS = 8.0  # weight of REPORT_ERROR against what is observed
MEMORY_REPORTS = 40.0  # older reports fade
SYSTEMATIC_ERROR = 0.005  # what no number of reports takes away
FLATTERED_ERROR = 0.3  # of a rate measured beside idle workers of the same core
CLIP = 2.5
CHANGE_REPORTS = 4
CHANGE_DEVIATIONS = 3.0
IMPOSSIBLE = 20.0
KNOWN_REPORTS = 3  # a rate is well known after so many
GRID = math.log(1.01)
STATERS_MAX = 20  # users whose statements are kept beside a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`log_rate`: the mean; `weight`: reports behind it; `variance`: of one report; `astray`: newest ones far off it.

    `published` is the rate given to policies, `stated_by` what users said it would be, `refused` counts impossible
    reports.
    """

    log_rate: float
    weight: float
    variance: float
    count: int
    published: float
    is_representative: bool = True
    astray: tuple[float, ...] = ()
    refused: int = 0
    stated_by: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """One standard deviation of the mean of log(steps/s)."""
        own = SYSTEMATIC_ERROR if self.is_representative else FLATTERED_ERROR
        # Half a step of the grid is the rest of what separates the mean from the rate that is published.
        return math.sqrt(self.variance / self.weight + own**2 + GRID**2 / 12)

    def is_impossible(self, log_rate: float) -> bool:
        """True for a rate that a well-known job cannot have reached."""
        return self.count - len(self.astray) >= KNOWN_REPORTS and log_rate > self.log_rate + math.log(IMPOSSIBLE)


def first(log_rate: float, seconds: float, *, is_representative: bool) -> Evidence:
    """What one report says."""
    return Evidence(
        log_rate=log_rate,
        weight=_weight(seconds),
        variance=REPORT_ERROR**2,
        count=1,
        published=_on_grid(log_rate),
        is_representative=is_representative,
    )


def updated(old: Evidence, log_rate: float, seconds: float) -> Evidence:
    """With one more report of the same worth."""
    if old.is_impossible(log_rate):
        return replace(old, refused=old.refused + 1)
    weight = _weight(seconds)
    deviation = math.sqrt(old.variance * (1 / weight + 1 / old.weight))
    gap = log_rate - old.log_rate
    is_astray = abs(gap) > CHANGE_DEVIATIONS * deviation
    astray = (*_same_side(old, gap), log_rate) if is_astray else ()
    if len(astray) >= CHANGE_REPORTS:
        return _changed(old, astray)
    gap = max(-CLIP * deviation, min(CLIP * deviation, gap))
    kept = min(old.weight, MEMORY_REPORTS - weight)
    mean = old.log_rate + gap * weight / (kept + weight)
    return replace(
        old,
        log_rate=mean,
        weight=kept + weight,
        variance=_variance(old, gap**2 / (1 / weight + 1 / old.weight)),
        count=old.count + 1,
        published=_published(old, mean),
        astray=astray,
    )


def on_grid(log_rate: FloatArray) -> FloatArray:
    """Rates in steps per second on the nearest steps of the grid; finite and positive."""
    rates: FloatArray = np.exp(np.round(np.clip(log_rate, -600.0, 600.0) / GRID) * GRID)
    return rates


def _on_grid(log_rate: float) -> float:
    return math.exp(round(max(-600.0, min(600.0, log_rate)) / GRID) * GRID)


def _weight(seconds: float) -> float:
    return seconds / (seconds + SHORT_REPORT_S)


def _same_side(old: Evidence, gap: float) -> tuple[float, ...]:
    """The reports astray so far, if this one lies on their side."""
    return old.astray if old.astray and (old.astray[-1] > old.log_rate) == (gap > 0) else ()


def _changed(old: Evidence, astray: tuple[float, ...]) -> Evidence:
    """A new beginning from the median of the reports that went astray."""
    ordered = sorted(astray)
    middle = (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2
    return replace(
        old,
        log_rate=middle,
        weight=CHANGE_REPORTS / 2,  # a median of few is worth less than their mean
        count=old.count + 1,
        published=_published(old, middle),
        astray=(),
    )


def _variance(old: Evidence, squared: float) -> float:
    """Of one report, with one more squared deviation; never below what the clock leaves."""
    known = min(old.count, MEMORY_REPORTS) + ERROR_PRIOR_REPORTS
    return max(1e-6, (old.variance * known + squared) / (known + 1))


def _published(old: Evidence, mean: float) -> float:
    return _on_grid(mean) if abs(mean - math.log(old.published)) > GRID else old.published
