"""How long jobs really are, given what they state: learned from jobs that have ended, and drawn for those that run.

Lengths are seconds alone on the fastest type. For a job that states e and has attained a, of a class (kind and user)
whose statements are off by b in the mean of ln(e / actual), with variance s2, where actual lengths have ln-mean mu and
ln-variance v2:

    omega = v2 / (v2 + s2),  m = omega (ln e - b) + (1 - omega) mu,  variance = omega s2,  X > a

The mean is that of a normal prior and a normal error. A job that states nothing has omega = 0 and variance v2.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.mechanism.planning.lengths import ASSUMED_S

SHRINKAGE = 5.0  # a class counts as much as all jobs together once so many of its jobs have ended
BEYOND = 1e-6  # a job that runs is longer than what it has attained by at least this part

Class = tuple[str, str]
"""Kind and user of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The length of one job that has ended, as stated (None: not stated) and as it was, in seconds, both > 0."""

    of: Class
    stated_s: float | None
    actual_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and variance of logarithms, and of how many values."""

    mean: float = 0.0
    variance: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthModel:
    """`errors`: ln(stated / actual) by class; `all_errors`: of all jobs; `actual`: ln of the actual lengths."""

    errors: Mapping[Class, Spread] = field(default_factory=dict)
    all_errors: Spread = Spread()
    actual: Spread = Spread()

    def draw_s(self, of: Class, stated_s: float | None, attained_s: float, uniform: float) -> float:
        """Return a length in seconds, beyond `attained_s`: the quantile `uniform`, in (0, 1), of the posterior."""
        mean, deviation = self.posterior(of, stated_s)
        least_s = max(attained_s * (1 + BEYOND), 1e-6)
        if deviation == 0:
            return max(float(np.exp(mean)), least_s)
        from scipy.special import ndtr, ndtri  # only a process that decides needs it

        lowest = float(ndtr((np.log(attained_s) - mean) / deviation)) if attained_s > 0 else 0.0
        quantile = min(lowest + uniform * (1 - lowest), 1 - 1e-12)
        return max(float(np.exp(mean + deviation * ndtri(quantile))), least_s)

    def posterior(self, of: Class, stated_s: float | None) -> tuple[float, float]:
        """Return mean and standard deviation of the logarithm of the length, before what it attained is known."""
        if stated_s is None:
            mean = self.actual.mean if self.actual.count else float(np.log(ASSUMED_S))
            return mean, float(np.sqrt(self.actual.variance))
        bias, variance = self.error(of)
        whole = self.actual.variance + variance
        omega = self.actual.variance / whole if whole > 0 and self.actual.count > 1 else 1.0
        mean = omega * (float(np.log(stated_s)) - bias) + (1 - omega) * self.actual.mean
        return mean, float(np.sqrt(omega * variance))

    def error(self, of: Class) -> tuple[float, float]:
        """Return mean and variance of ln(stated / actual) of the class, drawn towards all jobs while it has few."""
        own, every = self.errors.get(of, Spread()), self.all_errors
        part = own.count / (own.count + SHRINKAGE)
        variance = part * own.variance + (1 - part) * every.variance
        return part * own.mean + (1 - part) * every.mean, variance


def learned(lengths: Iterable[Length]) -> LengthModel:
    """Return the model of these jobs, in any order."""
    by_class: dict[Class, list[float]] = defaultdict(list)
    actual: list[float] = []
    for each in lengths:
        actual.append(float(np.log(each.actual_s)))
        if each.stated_s is not None:
            by_class[each.of].append(float(np.log(each.stated_s / each.actual_s)))
    return LengthModel(
        errors={of: _spread(values) for of, values in by_class.items()},
        all_errors=_spread([value for values in by_class.values() for value in values]),
        actual=_spread(actual),
    )


def _spread(values: list[float]) -> Spread:
    if not values:
        return Spread()
    ordered = np.sort(np.array(values))  # sums do not hang on the order of the jobs
    variance = float(ordered.var(ddof=1)) if len(values) > 1 else 0.0
    return Spread(mean=float(ordered.mean()), variance=variance, count=len(values))
