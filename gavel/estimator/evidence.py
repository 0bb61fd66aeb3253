"""What was measured of one (job kind, scale factor, accelerator type): a robust running mean of log(steps/s).

* A report that lies far off counts as one that lies `CLIP` deviations off: a straggler or a restart moves little.
* `CHANGE_REPORTS` reports in a row that agree with each other and not with the mean are a change point: the mean
  starts anew from them. Where other jobs are behind the mean, it takes several jobs to change it.
* A job that is off by more than `DEVIATION` where others are not is held back, and after `DEVIATION_REPORTS` told
  apart: the rate of the others does not move.
* A rate over `IMPOSSIBLE` times a well-known one is counted and not believed.
* What policies see lies on a 1 % grid and moves only once the mean has left its step: equal jobs stay equal.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from gavel.types import FloatArray, JobId

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
DEVIATION = math.log(1.2)  # of log(steps/s), beyond which a job may be of another kind than it says
DEVIATION_REPORTS = 5
ASTRAY_MAX = 15  # reports kept that are off
WITNESSES_MAX = 3  # newest jobs behind a mean that are known by name
IMPOSSIBLE = 20.0
KNOWN_REPORTS = 3  # a rate is well known after so many
GRID = math.log(1.01)
STATERS_MAX = 20  # users whose statements are kept beside a measurement


class Stray(NamedTuple):
    """A report far off the mean. `is_contested`: another job has confirmed the mean since."""

    job_id: JobId
    log_rate: float
    is_contested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`log_rate`: the mean; `weight`: reports behind it; `variance`: of one report; `astray`: newest ones far off it.

    `published` is the rate given to policies, `stated_by` what users said it would be, `refused` counts impossible
    reports, `witnesses` are the newest jobs behind the mean.
    """

    log_rate: float
    weight: float
    variance: float
    count: int
    published: float
    is_representative: bool = True
    astray: tuple[Stray, ...] = ()
    witnesses: tuple[JobId, ...] = ("",)
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
        sure = self.count - min(len(self.astray), CHANGE_REPORTS - 1)
        return sure >= KNOWN_REPORTS and log_rate > self.log_rate + math.log(IMPOSSIBLE)

    def has_others(self, jobs: Collection[JobId]) -> bool:
        """True if the mean is well known and rests on a job that is none of these."""
        return self.count >= KNOWN_REPORTS and any(each not in jobs for each in self.witnesses)

    def deviation_of(self, job_id: JobId) -> tuple[float, ...]:
        """The job's newest reports if it is off where others are not, for as long as it takes to be sure; else ()."""
        own = tuple(each.log_rate for each in self.astray if each.job_id == job_id)
        is_off = all(abs(rate - self.log_rate) > DEVIATION for rate in own[-DEVIATION_REPORTS:])
        return own if len(own) >= DEVIATION_REPORTS and is_off and self.has_others({job_id}) else ()


def first(log_rate: float, seconds: float, *, is_representative: bool, job_id: JobId = "") -> Evidence:
    """What one report says."""
    return Evidence(
        log_rate=log_rate,
        weight=_weight(seconds),
        variance=REPORT_ERROR**2,
        count=1,
        published=_on_grid(log_rate),
        is_representative=is_representative,
        witnesses=(job_id,),
    )


def updated(old: Evidence, log_rate: float, seconds: float, job_id: JobId = "") -> Evidence:
    """With one more report of the same worth."""
    if old.is_impossible(log_rate):
        return replace(old, refused=old.refused + 1)
    weight = _weight(seconds)
    deviation = math.sqrt(old.variance * (1 / weight + 1 / old.weight))
    gap = log_rate - old.log_rate
    is_astray = abs(gap) > CHANGE_DEVIATIONS * deviation
    astray = _astray(old, job_id, log_rate) if is_astray else _confirmed(old, job_id)
    if is_astray and _is_change(old, astray):
        return _changed(old, astray)
    if is_astray and abs(gap) > DEVIATION and old.has_others({job_id}):
        return replace(old, astray=astray)
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
        witnesses=_witnesses(old, job_id),
    )


def restarted(log_rates: Sequence[float], job_id: JobId) -> Evidence:
    """Evidence that begins with the median of several reports of one job."""
    middle = _median(log_rates)
    begun = first(middle, math.inf, is_representative=True, job_id=job_id)
    return replace(begun, weight=len(log_rates) / 2, count=len(log_rates))  # a median is worth less than a mean


def column(field: str, of: Collection[Evidence]) -> FloatArray:
    """One field of each, (N,)."""
    return np.fromiter(map(attrgetter(field), of), np.float64, len(of))


def errors(of: Collection[Evidence]) -> FloatArray:
    """The error of each, (N,)."""
    own = np.where(column("is_representative", of) > 0, SYSTEMATIC_ERROR, FLATTERED_ERROR)
    found: FloatArray = np.sqrt(column("variance", of) / column("weight", of) + own**2 + GRID**2 / 12)
    return found


def on_grid(log_rate: FloatArray) -> FloatArray:
    """Rates in steps per second on the nearest steps of the grid; finite and positive."""
    rates: FloatArray = np.exp(np.round(np.clip(log_rate, -600.0, 600.0) / GRID) * GRID)
    return rates


def _on_grid(log_rate: float) -> float:
    return math.exp(round(max(-600.0, min(600.0, log_rate)) / GRID) * GRID)


def _weight(seconds: float) -> float:
    return 1.0 / (1.0 + SHORT_REPORT_S / seconds)


def _astray(old: Evidence, job_id: JobId, log_rate: float) -> tuple[Stray, ...]:
    """Reports that are off on the side of this one, with it; a job that changes sides is off anew."""
    is_above = log_rate > old.log_rate
    kept = (each for each in old.astray if each.job_id != job_id or (each.log_rate > old.log_rate) == is_above)
    return (*kept, Stray(job_id, log_rate))[-ASTRAY_MAX:]


def _confirmed(old: Evidence, job_id: JobId) -> tuple[Stray, ...]:
    """The reports that are still off once this job confirmed the mean."""
    if not old.astray:
        return ()
    counts = Counter(each.job_id for each in old.astray)
    left = (each for each in old.astray if each.job_id != job_id and counts[each.job_id] < DEVIATION_REPORTS)
    return tuple(each._replace(is_contested=True) for each in left)


def _is_change(old: Evidence, astray: tuple[Stray, ...]) -> bool:
    """True for reports that are off and a change: all jobs behind the mean made them, or several and none objects."""
    is_above = astray[-1].log_rate > old.log_rate
    free = [each for each in astray if not each.is_contested and (each.log_rate > old.log_rate) == is_above]
    counts = Counter(each.job_id for each in free)
    is_common = len(counts) >= 3 or (len(counts) == 2 and min(counts.values()) >= 2)
    return len(free) >= CHANGE_REPORTS and (is_common or not old.has_others(counts))


def _changed(old: Evidence, astray: tuple[Stray, ...]) -> Evidence:
    """A new beginning from the median of the newest reports that went astray."""
    middle = _median([each.log_rate for each in astray[-DEVIATION_REPORTS:]])
    return replace(
        old,
        log_rate=middle,
        weight=CHANGE_REPORTS / 2,  # a median of few is worth less than their mean
        count=old.count + 1,
        published=_published(old, middle),
        astray=(),
        witnesses=tuple(dict.fromkeys(each.job_id for each in astray))[-WITNESSES_MAX:],
    )


def _witnesses(old: Evidence, job_id: JobId) -> tuple[JobId, ...]:
    if old.witnesses[-1] == job_id:
        return old.witnesses
    return (*(each for each in old.witnesses if each != job_id), job_id)[-WITNESSES_MAX:]


def _median(log_rates: Sequence[float]) -> float:
    ordered = sorted(log_rates)
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


def _variance(old: Evidence, squared: float) -> float:
    """Of one report, with one more squared deviation; never below what the clock leaves."""
    known = min(old.count, MEMORY_REPORTS) + ERROR_PRIOR_REPORTS
    return max(1e-6, (old.variance * known + squared) / (known + 1))


def _published(old: Evidence, mean: float) -> float:
    return _on_grid(mean) if abs(mean - math.log(old.published)) > GRID else old.published
