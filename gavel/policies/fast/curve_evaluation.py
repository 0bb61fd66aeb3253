"""The target curves of tiers in closed form: any point of a curve in O(jobs), where a `Path` keeps all its corners.

Curves of one kind that stand side by side, such as those of a tier's users, are evaluated together, each at a service
of its own: g curves of k jobs take as many calls of numpy as one. How fast each job's target rises with the service of
its curve comes along, for Newton's method.
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
LEAST = 1e-300  # to divide by, where nothing rises


class Spreads(Protocol):
    """g curves between a start and a cap, over k jobs: `group` (k,) says of which curve each of `jobs` (k,) is.

    `lows` and `highs` (g,) are the service of each curve at its ends.
    """

    jobs: IntArray
    group: IntArray
    lows: FloatArray
    highs: FloatArray

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets (k,) of `jobs` at the `service` of each curve (g,), and how fast each rises with its curve's."""


class Spread:
    """One curve between a start and a cap; `low` and `high` are its service at the ends.

    It keeps its last answer: a search asks for targets and slopes at one place, one after the other.
    """

    def __init__(self, whole: Spreads) -> None:
        self.jobs, self._whole = whole.jobs, whole
        self.low, self.high = float(whole.lows[0]), float(whole.highs[0])
        self._last: tuple[float, tuple[FloatArray, FloatArray]] | None = None

    def at(self, service: float) -> tuple[FloatArray, FloatArray]:
        """Targets (k,) of `jobs`, and how fast each rises with the service."""
        if self._last is None or self._last[0] != service:
            self._last = service, self._whole.at(np.asarray([service]))
        return self._last[1]


@dataclass(frozen=True, slots=True, eq=False)
class Spreading:
    """The target map of a spread for some of its jobs, at `place`; the level is the service of the whole."""

    spread: Spread
    place: IntArray

    @property
    def end(self) -> float:
        """The service of all at their caps; 0 if none can rise."""
        return self.spread.high if self.spread.high > self.spread.low else 0.0

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap is not known in closed form: where the map begins."""
        return self.spread.low

    def at(self, level: float) -> FloatArray:
        """Targets of the jobs."""
        targets: FloatArray = self.spread.at(level)[0][self.place]
        return targets

    def slope(self, level: float) -> FloatArray:
        """How fast each target rises just below the level."""
        slopes: FloatArray = self.spread.at(level)[1][self.place]
        return slopes

    def of(self, jobs: IntArray) -> "Spreading":
        """The map of these jobs alone, at the same levels of the whole."""
        return Spreading(self.spread, self.place[jobs])


def along(curve: Curve, jobs: int, rows: IntArray) -> TargetMap:
    """The target map of `curve`, which is over all `jobs`, for the `rows` among them."""

    def between(start: FloatArray, cap: FloatArray) -> Targets:
        low, high = np.zeros(jobs), np.zeros(jobs)
        low[rows], high[rows] = start, cap
        whole = spread(curve, low, high)
        return Spreading(whole, _places(whole.jobs, jobs)[rows])

    return between


def spread(curve: Curve, start: FloatArray, cap: FloatArray) -> Spread:
    """`curve` between `start` and `cap`, both (n,) over all jobs."""
    return Spread(_side_by_side([curve], start, cap))


def _side_by_side(curves: Sequence[Curve], start: FloatArray, cap: FloatArray) -> Spreads:
    """The curves, which have no job in common, those of one kind together."""
    if all(type(curve) is One for curve in curves):
        return _Ones(_jobs(curves), start, cap)
    curves = [_without_only_children(curve) for curve in curves]
    kinds: dict[object, list[int]] = {}
    for index, curve in enumerate(curves):
        kinds.setdefault((type(curve), id(curve.enough) if isinstance(curve, Then) else 0), []).append(index)
    if len(kinds) == 1:
        return _of_one_kind(curves, start, cap)
    parts = [_of_one_kind([curves[index] for index in indices], start, cap) for indices in kinds.values()]
    return _Mixed([np.asarray(indices) for indices in kinds.values()], parts)


def _without_only_children(curve: Curve) -> Curve:
    while isinstance(curve, Share) and len(curve.children) == 1:
        curve = curve.children[0]
    return curve


def _of_one_kind(curves: Sequence[Curve], start: FloatArray, cap: FloatArray) -> Spreads:
    match curves[0]:
        case One():
            return _Ones(_jobs(curves), start, cap)
        case Share():
            return _Shares([each for each in curves if isinstance(each, Share)], start, cap)
        case InOrder():
            return _Orders([each for each in curves if isinstance(each, InOrder)], start, cap)
        case EqualRho():
            return _late([each for each in curves if isinstance(each, EqualRho)], start, cap)
        case Then():
            return _Stages([each for each in curves if isinstance(each, Then)], start, cap)
        case GroupsByRho():
            return _GroupsByRho([each for each in curves if isinstance(each, GroupsByRho)], start, cap)
    raise TypeError(f"no closed form for {type(curves[0]).__name__}")


class _Mixed:
    """Curves of several kinds: each of the `parts` has some of them, at the places `curves`."""

    def __init__(self, curves: Sequence[IntArray], parts: Sequence[Spreads]) -> None:
        self.curves, self.parts = curves, parts
        self.jobs = np.concatenate([part.jobs for part in parts])
        self.group = np.concatenate([of[part.group] for of, part in zip(curves, parts, strict=True)])
        self.lows, self.highs = np.empty((2, sum(map(len, curves))))
        for of, part in zip(curves, parts, strict=True):
            self.lows[of], self.highs[of] = part.lows, part.highs

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of each part."""
        answers = [part.at(service[of]) for of, part in zip(self.curves, self.parts, strict=True)]
        return np.concatenate([each[0] for each in answers]), np.concatenate([each[1] for each in answers])


class _Ones:
    """Curves of a single job each (`One`)."""

    def __init__(self, jobs: IntArray, start: FloatArray, cap: FloatArray) -> None:
        self.jobs, self.group = jobs, np.arange(len(jobs))
        self.lows, self.highs = start[jobs], np.maximum(start[jobs], cap[jobs])
        self.slopes = np.ones(len(jobs))

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The service itself."""
        return np.clip(service, self.lows, self.highs), self.slopes


class _Shares:
    """Curves in which children rise together, each by its weight (`Share`): child c is of curve `parent[c]`."""

    def __init__(self, curves: Sequence[Share], start: FloatArray, cap: FloatArray) -> None:
        self.parent = _groups([len(each.children) for each in curves])
        self.weight = np.concatenate([np.asarray(each.weights, dtype=float) for each in curves])
        self.below = _side_by_side([child for each in curves for child in each.children], start, cap)
        self.jobs, self.group = self.below.jobs, self.parent[self.below.group]
        self.lows, self.highs = (_sums(self.parent, ends, len(curves)) for ends in (self.below.lows, self.below.highs))
        self.levels = _Levels(self.weight, self.below.lows, self.below.highs, self.parent, len(curves))
        self.last = self._last()

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Each child at its share of its curve's service."""
        low, high, parent = self.below.lows, self.below.highs, self.parent
        wanted = self.weight * self.levels.at(service - self.lows)[parent]
        full = (service >= self.highs)[parent]
        rising = np.where((wanted > low) & (wanted <= high), self.weight, 0.0)
        rising = np.where(full, self.last, rising)
        share = rising / np.maximum(_sums(parent, rising, len(self.lows)), LEAST)[parent]
        targets, slopes = self.below.at(np.where(full, high, np.minimum(np.maximum(wanted, low), high)))
        return targets, slopes * share[self.below.group]

    def _last(self) -> FloatArray:
        """The weights of those children that rise just before all of their curve are at their caps, 0 for others."""
        ends = np.where(self.below.highs > self.below.lows, self.below.highs / self.weight, -np.inf)
        latest = np.full(len(self.lows), -np.inf)
        np.maximum.at(latest, self.parent, ends)
        last: FloatArray = np.where(ends >= latest[self.parent], self.weight, 0.0)
        return last


class _Levels:
    """Children rise together, child c from level low_c / w_c to high_c / w_c: the level at any sum of theirs.

    `of` (c,) says to which of `count` curves each belongs.
    """

    def __init__(self, weight: FloatArray, low: FloatArray, high: FloatArray, of: IntArray, count: int) -> None:
        rising = (high > low).nonzero()[0]
        weight, of = weight[rising], of[rising]
        heaviest = np.zeros(count)
        np.maximum.at(heaviest, of, weight)
        corners, of_corner = np.concatenate([low[rising] / weight, high[rising] / weight]), np.concatenate([of, of])
        order = np.lexsort((corners, of_corner))
        self.corners, self.of = corners[order], of_corner[order]
        self.size = np.bincount(of_corner, minlength=count)
        self.first = self.size.cumsum() - self.size
        part = weight / heaviest[of]  # sums go over all curves: none is to drown in another's rounding
        self.rate = np.maximum(0.0, np.concatenate([part, -part])[order].cumsum()) * heaviest[self.of]
        gaps = np.zeros(len(order))
        gaps[:-1] = self.corners[1:] - self.corners[:-1]
        self.risen = _running(self.rate * gaps, self.of, self.first)

    def at(self, risen: FloatArray) -> FloatArray:
        """The level of each curve, (g,), at which its children have risen by `risen` (g,) together."""
        if not len(self.corners):
            return np.zeros(len(risen))
        passed = np.bincount(self.of, self.risen < risen[self.of], len(risen)).astype(np.int64)
        left = np.minimum(self.first + np.maximum(passed - 1, 0), len(self.corners) - 1)
        right = np.minimum(left + 1, self.first + self.size - 1)
        rate, over = self.rate[left], risen - self.risen[left]
        level = self.corners[left] + np.divide(over, rate, out=np.full(len(rate), np.inf), where=rate > 0)
        return np.where(self.size > 0, np.minimum(level, self.corners[right]), 0.0)


class _Orders:
    """Curves in which jobs rise one after the other (`InOrder` of jobs)."""

    def __init__(self, curves: Sequence[InOrder], start: FloatArray, cap: FloatArray) -> None:
        sizes = np.asarray([len(each.children) for each in curves], dtype=np.int64)
        self.group = _groups(sizes)
        self.jobs = _jobs([child for each in curves for child in each.children])
        self.start = start[self.jobs]
        room = np.maximum(0.0, cap[self.jobs] - self.start)
        self.turns = Turns(_running(room, self.group, np.cumsum(sizes) - sizes), room)
        self.lows = _sums(self.group, self.start, len(curves))
        self.highs = self.lows + _sums(self.group, room, len(curves))

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Full before the job in turn, untouched after it."""
        risen = (service - self.lows)[self.group]
        return self.start + self.turns.risen(risen), self.turns.slope(risen)


def _late(curves: Sequence[EqualRho], start: FloatArray, cap: FloatArray) -> "LateGroups":
    """Jobs of each curve rise to an equal finish-time fairness, here without the corners in between."""
    jobs, group = np.concatenate([each.jobs for each in curves]), _groups([len(each.jobs) for each in curves])
    lateness = _together([each.lateness for each in curves])
    return LateGroups(lateness, jobs, group, len(curves), start[jobs], cap[jobs])


class _GroupsByRho:
    """Curves in which groups rise to an equal finish-time fairness, and the jobs of each (`GroupsByRho`)."""

    def __init__(self, curves: Sequence[GroupsByRho], start: FloatArray, cap: FloatArray) -> None:
        self.within = _late([group for each in curves for group in each.within], start, cap)
        parent = _groups([len(each.within) for each in curves])
        lateness, lows, highs = _together([each.lateness for each in curves]), self.within.lows, self.within.highs
        self.between = LateGroups(lateness, np.arange(len(parent)), parent, len(curves), lows, highs)
        self.jobs, self.group = self.within.jobs, parent[self.within.group]
        self.lows, self.highs = self.between.lows, self.between.highs

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The point of each group's curve that its part of the service falls on."""
        parts, rises = self.between.at(service)
        targets, slope = self.within.at(parts)
        return targets, slope * rises[self.within.group]


class LateGroups:
    """Groups of jobs, each of which rises to an equal finish-time fairness of its own."""

    def __init__(
        self, lateness: Lateness, jobs: IntArray, group: IntArray, count: int, start: FloatArray, cap: FloatArray
    ) -> None:
        """`group`, one of `count`, `start` and `cap` are those of each of `jobs` (k,)."""
        self.jobs, self.group, self.count, self.lateness = jobs, group, count, lateness
        self.of_level = maps.EqualRho(lateness, start, np.maximum(start, cap))
        self.lows, self.highs = self.sums(self.of_level.start), self.sums(self.of_level.cap)
        self.last = np.zeros(self.count)
        np.maximum.at(self.last, group, lateness.level(self.of_level.cap))
        self.guess = self.last  # where the next search begins: successive services are close to one another

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets (k,) at the `service` of each group (g,), and how fast each rises with its group's.

        The level of each group is found by Newton's method, kept between two levels that are below and above: where it
        leaves them the straight line between these says where to go on, and every third time their middle.
        """
        wanted = np.clip(service, self.lows, self.highs)
        low, high, short, over = np.zeros(self.count), self.last, wanted - self.lows, wanted - self.highs
        level = np.where(over >= 0, self.last, self.guess)
        for step in range(MOST_STEPS):
            targets, slope = self.of_level.at_and_slope(level[self.group])
            missing, rate = wanted - self.sums(targets), self.sums(slope)
            is_open = np.abs(missing) > PRECISION * (1.0 + wanted)
            if not is_open.any():
                break
            below = missing >= 0
            low, short = np.where(below, level, low), np.where(below, missing, short)
            high, over = np.where(below, high, level), np.where(below, over, missing)
            newton = level + np.divide(missing, rate, out=np.full_like(rate, np.inf), where=rate > 0)
            part = short / np.maximum(short - over, LEAST) if step % 3 else 0.5
            within = (newton > low) & (newton < high)
            level = np.where(is_open, np.where(within, newton, low + part * (high - low)), level)
        self.guess = level
        return targets, slope / np.maximum(rate, LEAST)[self.group]

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of the `values` (k,) of each group, (g,)."""
        return _sums(self.group, values, self.count)


class _Stages:
    """Curves that follow one curve until each job has enough, then another (`Then`, all with the same `enough`)."""

    def __init__(self, curves: Sequence[Then], start: FloatArray, cap: FloatArray) -> None:
        enough = np.maximum(start, np.minimum(cap, curves[0].enough))
        self.first = _side_by_side([each.first for each in curves], start, enough)
        self.second = _side_by_side([each.second for each in curves], enough, cap)
        self.jobs, self.group = self.second.jobs, self.second.group
        self.lows, self.highs = self.first.lows, self.second.highs
        self.place = _places(self.first.jobs, len(start))[self.jobs]

    def at(self, service: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The point of the stage that the service falls in."""
        later = (service > self.first.highs)[self.group]
        early, late = (part.at(np.clip(service, part.lows, part.highs)) for part in (self.first, self.second))
        return np.where(later, late[0], early[0][self.place]), np.where(later, late[1], early[1][self.place])


def _jobs(children: Sequence[Curve]) -> IntArray:
    return np.asarray([child.job for child in children if isinstance(child, One)], dtype=np.int64)


def _places(jobs: IntArray, count: int) -> IntArray:
    """Where each of `count` jobs lies in `jobs` (k,); 0 for those that are not there."""
    places = np.zeros(count, dtype=np.int64)
    places[jobs] = np.arange(len(jobs))
    return places


def _groups(sizes: Sequence[int] | IntArray) -> IntArray:
    return np.repeat(np.arange(len(sizes)), sizes)


def _together(parts: Sequence[Lateness]) -> Lateness:
    work, age_s, isolated_s = ([getattr(each, name) for each in parts] for name in ("work", "age_s", "isolated_s"))
    return Lateness(np.concatenate(work), np.concatenate(age_s), np.concatenate(isolated_s))


def _sums(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    """The sum of the `values` (k,) of each of `count` groups."""
    together: FloatArray = np.bincount(group, values, count).astype(float)
    return together


def _running(values: FloatArray, group: IntArray, first: IntArray) -> FloatArray:
    """The sum of the `values` (k,) before each in its group; groups follow one another, each from `first` (g,) on."""
    before = values.cumsum() - values
    inner: FloatArray = before - before[np.minimum(first, max(len(values) - 1, 0))][group] if len(values) else before
    return inner
