"""What was measured of one (job kind, scale factor, accelerator type): a robust running mean of log(steps/s).

* A report that lies far off counts as one that lies `CLIP` deviations off: a straggler or a restart moves little.
* `CHANGE_REPORTS` reports in a row that agree with each other and not with the mean are a change point: the mean
  starts anew from them. Where other jobs are behind the mean, it takes several jobs to change it.
* Reports of a job that is off by more than `DEVIATION`, while others are not, are held back; after `DEVIATION_REPORTS`
  of them the job gets a kind of its own. The rate of the others does not move.
* A rate over `IMPOSSIBLE` times a well-known one is counted and not believed.
* The rate given to policies lies on a 1 % grid and moves only once the mean is over 1 % away: equal jobs stay equal.
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
SHORTEST_S = 0.05  # shorter reports are ignored: the clock's error is too large
ERROR_PRIOR_REPORTS = 8.0  # weight of REPORT_ERROR against what is observed
MEMORY_REPORTS = 40.0  # older reports lose weight
SYSTEMATIC_ERROR = 0.005  # an error that no number of reports removes
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


class Outlier(NamedTuple):
    """A report far off the mean. `is_contested`: another job has confirmed the mean since."""

    job_id: JobId
    log_rate: float
    is_contested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was measured of one kind, gang size and type; `log_rate` is the running mean of log(steps/s).

    `weight` is the number of long reports that the mean is worth, `variance` that of log(steps/s) of one report, and
    `count` the number of reports. `published` is the rate given to policies (steps/s). `outliers` are the newest
    reports far from the mean, `sources` the newest jobs behind the mean. `refused` counts impossible reports, and
    `stated_by` has the steps/s that each user claimed. `held_bytes` is the most memory that one of these jobs was seen
    to hold on one accelerator, 0: not known.
    """

    log_rate: float
    weight: float
    variance: float
    count: int
    published: float
    is_representative: bool = True
    outliers: tuple[Outlier, ...] = ()
    sources: tuple[JobId, ...] = ("",)
    refused: int = 0
    stated_by: Mapping[str, float] = field(default_factory=dict)
    held_bytes: int = 0

    @property
    def error(self) -> float:
        """One standard deviation of the mean of log(steps/s)."""
        own = SYSTEMATIC_ERROR if self.is_representative else FLATTERED_ERROR
        # Half a step of the grid is the rest of what separates the mean from the rate that is published.
        return math.sqrt(self.variance / self.weight + own**2 + GRID**2 / 12)

    def is_impossible(self, log_rate: float) -> bool:
        """Return whether the rate is over `IMPOSSIBLE` times a mean that rests on enough reports."""
        sure = self.count - min(len(self.outliers), CHANGE_REPORTS - 1)
        return sure >= KNOWN_REPORTS and log_rate > self.log_rate + math.log(IMPOSSIBLE)

    def has_others(self, jobs: Collection[JobId]) -> bool:
        """Return whether the mean rests on enough reports, and on a job other than these."""
        return self.count >= KNOWN_REPORTS and any(each not in jobs for each in self.sources)

    def deviation_of(self, job_id: JobId) -> tuple[float, ...]:
        """Return log(steps/s) of the job's newest reports if enough are off while other jobs' are not; else ()."""
        own = tuple(each.log_rate for each in self.outliers if each.job_id == job_id)
        is_off = all(abs(rate - self.log_rate) > DEVIATION for rate in own[-DEVIATION_REPORTS:])
        return own if len(own) >= DEVIATION_REPORTS and is_off and self.has_others({job_id}) else ()


def first(log_rate: float, seconds: float, *, is_representative: bool, job_id: JobId = "") -> Evidence:
    """Return the evidence of one report."""
    return Evidence(
        log_rate=log_rate,
        weight=_weight(seconds),
        variance=REPORT_ERROR**2,
        count=1,
        published=_on_grid(log_rate),
        is_representative=is_representative,
        sources=(job_id,),
    )


def updated(old: Evidence, log_rate: float, seconds: float, job_id: JobId = "") -> Evidence:
    """Return the evidence with one more report, as representative as the ones before."""
    if old.is_impossible(log_rate):
        return replace(old, refused=old.refused + 1)
    weight = _weight(seconds)
    deviation = math.sqrt(old.variance * (1 / weight + 1 / old.weight))
    gap = log_rate - old.log_rate
    is_outlier = abs(gap) > CHANGE_DEVIATIONS * deviation
    outliers = _outliers(old, job_id, log_rate) if is_outlier else _confirmed(old, job_id)
    if is_outlier and _is_change(old, outliers):
        return _changed(old, outliers)
    if is_outlier and abs(gap) > DEVIATION and old.has_others({job_id}):
        return replace(old, outliers=outliers)
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
        outliers=outliers,
        sources=_sources(old, job_id),
    )


def restarted(log_rates: Sequence[float], job_id: JobId) -> Evidence:
    """Return evidence that begins with the median of several reports of one job."""
    middle = _median(log_rates)
    begun = first(middle, math.inf, is_representative=True, job_id=job_id)
    return replace(begun, weight=len(log_rates) / 2, count=len(log_rates))  # a median is worth less than a mean


def column(field: str, of: Collection[Evidence]) -> FloatArray:
    """Return one field of each, (N,)."""
    return np.fromiter(map(attrgetter(field), of), np.float64, len(of))


def errors(of: Collection[Evidence]) -> FloatArray:
    """Return the error of each, (N,), of log(steps/s)."""
    own = np.where(column("is_representative", of) > 0, SYSTEMATIC_ERROR, FLATTERED_ERROR)
    deviations: FloatArray = np.sqrt(column("variance", of) / column("weight", of) + own**2 + GRID**2 / 12)
    return deviations


def on_grid(log_rate: FloatArray) -> FloatArray:
    """Return the rates (steps/s) nearest on the grid; finite and positive."""
    rates: FloatArray = np.exp(np.round(np.clip(log_rate, -600.0, 600.0) / GRID) * GRID)
    return rates


def _on_grid(log_rate: float) -> float:
    return math.exp(round(max(-600.0, min(600.0, log_rate)) / GRID) * GRID)


def _weight(seconds: float) -> float:
    return 1.0 / (1.0 + SHORT_REPORT_S / seconds)


def _outliers(old: Evidence, job_id: JobId, log_rate: float) -> tuple[Outlier, ...]:
    """Return the outliers with this report added, without the job's outliers on the other side of the mean."""
    is_above = log_rate > old.log_rate
    kept = (each for each in old.outliers if each.job_id != job_id or (each.log_rate > old.log_rate) == is_above)
    return (*kept, Outlier(job_id, log_rate))[-ASTRAY_MAX:]


def _confirmed(old: Evidence, job_id: JobId) -> tuple[Outlier, ...]:
    """Return the outliers that remain once a report of this job confirmed the mean; they are contested now."""
    if not old.outliers:
        return ()
    counts = Counter(each.job_id for each in old.outliers)
    left = (each for each in old.outliers if each.job_id != job_id and counts[each.job_id] < DEVIATION_REPORTS)
    return tuple(each._replace(is_contested=True) for each in left)


def _is_change(old: Evidence, outliers: tuple[Outlier, ...]) -> bool:
    """Return whether the outliers show a change: several jobs report them, or no other job supports the mean."""
    is_above = outliers[-1].log_rate > old.log_rate
    free = [each for each in outliers if not each.is_contested and (each.log_rate > old.log_rate) == is_above]
    counts = Counter(each.job_id for each in free)
    is_common = len(counts) >= 3 or (len(counts) == 2 and min(counts.values()) >= 2)
    return len(free) >= CHANGE_REPORTS and (is_common or not old.has_others(counts))


def _changed(old: Evidence, outliers: tuple[Outlier, ...]) -> Evidence:
    """Return the evidence begun anew from the median of the newest outliers."""
    middle = _median([each.log_rate for each in outliers[-DEVIATION_REPORTS:]])
    return replace(
        old,
        log_rate=middle,
        weight=CHANGE_REPORTS / 2,  # a median of few is worth less than their mean
        count=old.count + 1,
        published=_published(old, middle),
        outliers=(),
        sources=tuple(dict.fromkeys(each.job_id for each in outliers))[-WITNESSES_MAX:],
    )


def _sources(old: Evidence, job_id: JobId) -> tuple[JobId, ...]:
    if old.sources[-1] == job_id:
        return old.sources
    return (*(each for each in old.sources if each != job_id), job_id)[-WITNESSES_MAX:]


def _median(log_rates: Sequence[float]) -> float:
    ordered = sorted(log_rates)
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


def _variance(old: Evidence, squared: float) -> float:
    """Return the variance of one report, updated by one squared deviation, at least 1e-6."""
    prior_reports = min(old.count, MEMORY_REPORTS) + ERROR_PRIOR_REPORTS
    return max(1e-6, (old.variance * prior_reports + squared) / (prior_reports + 1))


def _published(old: Evidence, mean: float) -> float:
    return _on_grid(mean) if abs(mean - math.log(old.published)) > GRID else old.published
