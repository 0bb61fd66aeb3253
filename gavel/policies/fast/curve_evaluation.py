"""The target curves of tiers in closed form: any point of a curve in O(jobs), where a `Path` keeps all its corners.

A spread answers what a curve of `_curves` answers for one service of its group; how fast each job's target rises with
it comes along, for Newton's method.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gavel.policies.fast import targets as maps
from gavel.policies.fast.targets import TargetMap, Targets
from gavel.policies.tiers.curves import Curve, EqualRho, GroupsByRho, InOrder, Lateness, One, Share, Then, Turns
from gavel.types import FloatArray, IntArray

MOST_STEPS = 100
PRECISION = 1e-13  # relative, of a service


class Spread(Protocol):
    """A curve between a start and a cap: `low` and `high` are the group's service at its ends."""

    jobs: IntArray
    low: float
    high: float

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """Targets of `jobs`, and how fast each rises with the group's service."""


@dataclass(frozen=True, slots=True, eq=False)
class Spreading:
    """The target map of a spread, for `rows` of all jobs; the level is the service of the whole."""

    spread: Spread
    start: FloatArray
    rows: IntArray

    @property
    def end(self) -> float:
        """The service of all at their caps; 0 if none can rise."""
        return self.spread.high if self.spread.high > self.spread.low else 0.0

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap is not known in closed form: where the map begins."""
        return self.spread.low

    def at(self, level: float) -> FloatArray:
        """Targets of `rows`."""
        targets = self.start.copy()
        targets[self.spread.jobs] = self.spread.at(level)[0]
        picked: FloatArray = targets[self.rows]
        return picked

    def slope(self, level: float) -> FloatArray:
        """How fast each target rises just below the level."""
        slopes = np.zeros_like(self.start)
        slopes[self.spread.jobs] = self.spread.at(level)[1]
        picked: FloatArray = slopes[self.rows]
        return picked

    def of(self, jobs: IntArray) -> "Spreading":
        """The map of these jobs alone, at the same levels of the whole."""
        return Spreading(self.spread, self.start, self.rows[jobs])


def along(curve: Curve, jobs: int, rows: IntArray) -> TargetMap:
    """The target map of `curve`, which is over all `jobs`, for the `rows` among them."""

    def between(start: FloatArray, cap: FloatArray) -> Targets:
        low, high = np.zeros(jobs), np.zeros(jobs)
        low[rows], high[rows] = start, cap
        return Spreading(_Remembering(spread(curve, low, high)), low, rows)

    return between


class _Remembering:
    """A spread that keeps its last answer: a search asks for targets and slopes at one place, one after the other."""

    def __init__(self, inner: Spread) -> None:
        self.inner, self.jobs, self.low, self.high = inner, inner.jobs, inner.low, inner.high
        self.last: tuple[float, tuple[FloatArray, FloatArray]] | None = None

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """As the spread itself."""
        if self.last is None or self.last[0] != service:
            self.last = service, self.inner.at(service)
        return self.last[1]


def spread(curve: Curve, start: FloatArray, cap: FloatArray) -> Spread:
    """`curve` between `start` and `cap`, both (n,) over all jobs."""
    match curve:
        case One():
            return _Together(np.asarray([curve.job]), np.ones(1), start, cap)
        case Share():
            return _share(curve, start, cap)
        case InOrder():
            return _InTurn(_jobs(curve.children), start, cap)
        case EqualRho():
            return _EquallyLate(curve, start, cap)
        case Then():
            return _TwoStages(curve, start, cap)
        case GroupsByRho():
            return _GroupsByRho(curve, start, cap)
    raise TypeError(f"no closed form for {type(curve).__name__}")


class _Levels:
    """Children rise together, child c from level low_c / w_c to high_c / w_c: the level at any sum of theirs."""

    def __init__(self, weight: FloatArray, low: FloatArray, high: FloatArray) -> None:
        rising = high > low
        weight, low, high = weight[rising], low[rising], high[rising]
        corners = np.concatenate([low / weight, high / weight])
        order = np.argsort(corners, kind="stable")
        self.corners = corners[order]
        self.rate = np.maximum(0.0, np.cumsum(np.concatenate([weight, -weight])[order]))
        self.risen = np.concatenate([[0.0], np.cumsum(self.rate[:-1] * np.diff(self.corners))]) if len(order) else order

    def at(self, risen: float) -> float:
        """The level at which the children have risen by `risen` together."""
        if not len(self.corners):
            return 0.0
        left = max(0, int(np.searchsorted(self.risen, risen, side="left")) - 1)
        rate = float(self.rate[left])
        level = float(self.corners[left]) + (risen - float(self.risen[left])) / rate if rate > 0 else np.inf
        return min(level, float(self.corners[min(left + 1, len(self.corners) - 1)]))


class _Together:
    """Jobs rise together, each by its weight (a `Share` of jobs)."""

    def __init__(self, jobs: IntArray, weight: FloatArray, start: FloatArray, cap: FloatArray) -> None:
        self.jobs, self.weight = jobs, weight
        self.start, self.cap = start[jobs], np.maximum(start[jobs], cap[jobs])
        self.low, self.high = float(self.start.sum()), float(self.cap.sum())
        self.levels = _Levels(weight, self.start, self.cap)

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """Weight times level, between start and cap."""
        if service >= self.high:
            return self.cap, _at_the_end(self.weight, self.start, self.cap)
        wanted = self.weight * self.levels.at(service - self.low)
        rising = (wanted > self.start) & (wanted <= self.cap)
        slope = np.where(rising, self.weight, 0.0)
        return np.clip(wanted, self.start, self.cap), slope / max(float(slope.sum()), 1e-300)


class _Groups:
    """Groups rise together, each by its weight (a `Share` of curves)."""

    def __init__(self, children: Sequence[Spread], weights: Sequence[float]) -> None:
        self.children, self.weight = children, np.asarray(weights, dtype=float)
        self.jobs = np.concatenate([child.jobs for child in children])
        self.lows = np.asarray([child.low for child in children])
        self.highs = np.asarray([child.high for child in children])
        self.low, self.high = float(self.lows.sum()), float(self.highs.sum())
        self.levels = _Levels(self.weight, self.lows, self.highs)

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """Each child at its share of the service."""
        level = self.levels.at(min(service, self.high) - self.low)
        wanted = self.weight * level
        if service >= self.high:
            share, own = _at_the_end(self.weight, self.lows, self.highs), self.highs
        else:
            rising = np.where((wanted > self.lows) & (wanted <= self.highs), self.weight, 0.0)
            share, own = rising / max(float(rising.sum()), 1e-300), np.clip(wanted, self.lows, self.highs)
        parts = [child.at(float(each)) for child, each in zip(self.children, own, strict=True)]
        slopes = [part[1] * each for part, each in zip(parts, share, strict=True)]
        return np.concatenate([part[0] for part in parts]), np.concatenate(slopes)


class _InTurn:
    """Jobs rise one after the other (an `InOrder` of jobs)."""

    def __init__(self, jobs: IntArray, start: FloatArray, cap: FloatArray) -> None:
        self.jobs, self.start = jobs, start[jobs]
        self.turns = Turns.of_room(np.maximum(0.0, cap[jobs] - self.start))
        self.low = float(self.start.sum())
        self.high = self.low + float(self.turns.room.sum())

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """Full before the job in turn, untouched after it."""
        risen = service - self.low
        return self.start + self.turns.risen(risen), self.turns.slope(risen)


class _EquallyLate:
    """Jobs rise to an equal finish-time fairness (an `EqualRho`), here without the corners in between."""

    def __init__(self, curve: EqualRho, start: FloatArray, cap: FloatArray) -> None:
        self.jobs = curve.jobs
        self.groups = LateGroups(curve.lateness, _in_one_group(self.jobs), start[self.jobs], cap[self.jobs])
        self.low, self.high = float(self.groups.lows[0]), float(self.groups.highs[0])

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """The targets of the least rho that the service pays for."""
        return self.groups.at(np.asarray([service]))


class _GroupsByRho:
    """Groups rise to an equal finish-time fairness, and the jobs of each (a `GroupsByRho`)."""

    def __init__(self, curve: GroupsByRho, start: FloatArray, cap: FloatArray) -> None:
        sizes = [len(each.jobs) for each in curve.within]
        self.group = np.repeat(np.arange(len(sizes)), sizes)
        self.jobs = np.concatenate([each.jobs for each in curve.within])
        parts = [(each.work, each.age_s, each.isolated_s) for each in curve.within]
        of_jobs = Lateness(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        self.within = LateGroups(of_jobs, self.group, start[self.jobs], cap[self.jobs])
        lows, highs = self.within.lows, self.within.highs
        self.between = LateGroups(curve.lateness, _in_one_group(lows), lows, highs)
        self.low, self.high = float(lows.sum()), float(highs.sum())

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """The point of each group's curve that its part of the service falls on."""
        parts, rises = self.between.at(np.asarray([service]))
        targets, slope = self.within.at(parts)
        return targets, slope * rises[self.group]


class LateGroups:
    """Groups of jobs, each of which rises to an equal finish-time fairness of its own."""

    def __init__(self, lateness: Lateness, group: IntArray, start: FloatArray, cap: FloatArray) -> None:
        """`group`, `start` and `cap` are those of each job, (k,)."""
        self.group, self.lateness = group, lateness
        self.count = int(group.max(initial=-1)) + 1
        self.of_level = maps.EqualRho(lateness, start, np.maximum(start, cap))
        self.lows, self.highs = self.sums(self.of_level.start), self.sums(self.of_level.cap)
        self.last = np.zeros(self.count)
        np.maximum.at(self.last, group, lateness.level(self.of_level.cap))
        self.guess = self.last  # where the next search begins: successive services are close to one another

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets (k,) at the `service` of each group (g,), and how fast each rises with its group's.

        The level of each group is found by Newton's method, kept between two levels that are below and above.
        """
        low, high = np.zeros(self.count), self.last.copy()
        level, wanted = self.guess, np.clip(service, self.lows, self.highs)
        for _ in range(MOST_STEPS):
            targets, slope = self.of_level.at(level[self.group]), self.of_level.slope(level[self.group])
            missing, rate = wanted - self.sums(targets), self.sums(slope)
            if (np.abs(missing) <= PRECISION * (1.0 + wanted)).all():
                break
            low, high = np.where(missing >= 0, level, low), np.where(missing <= 0, level, high)
            newton = level + np.divide(missing, rate, out=np.full_like(rate, np.inf), where=rate > 0)
            level = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        self.guess = level
        return targets, slope / np.maximum(rate, 1e-300)[self.group]

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of the `values` (k,) of each group, (g,)."""
        together: FloatArray = np.bincount(self.group, values, self.count).astype(float)
        return together


class _TwoStages:
    """One curve until each job has enough, then another (a `Then`)."""

    def __init__(self, curve: Then, start: FloatArray, cap: FloatArray) -> None:
        enough = np.maximum(start, np.minimum(cap, curve.enough))
        self.first = spread(curve.first, start, enough)
        self.second = spread(curve.second, enough, cap)
        self.jobs = self.second.jobs
        self.low, self.high = self.first.low, self.second.high
        self.place = np.searchsorted(self.first.jobs, self.jobs, sorter=np.argsort(self.first.jobs))
        self.place = np.argsort(self.first.jobs)[self.place]

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """The point of the stage that the service falls in."""
        if service > self.first.high:
            return self.second.at(service)
        targets, slope = self.first.at(service)
        return targets[self.place], slope[self.place]


def _share(curve: Share, start: FloatArray, cap: FloatArray) -> Spread:
    if all(isinstance(child, One) for child in curve.children):
        return _Together(_jobs(curve.children), np.asarray(curve.weights, dtype=float), start, cap)
    return _Groups([spread(child, start, cap) for child in curve.children], curve.weights)


def _jobs(children: Sequence[Curve]) -> IntArray:
    return np.asarray([child.job for child in children if isinstance(child, One)], dtype=np.int64)


def _in_one_group(jobs: IntArray | FloatArray) -> IntArray:
    return np.zeros(len(jobs), dtype=np.int64)


def _at_the_end(weight: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """How fast the last ones rise just before all are at their caps."""
    ends = np.where(high > low, high / weight, -np.inf)
    last = np.where(ends >= ends.max(initial=-np.inf), weight, 0.0)
    share: FloatArray = last / max(float(last.sum()), 1e-300)
    return share
