"""Target curves: how a group's service is spread over its jobs (docs/tiers.md).

A curve says, for a group that is to have service sigma, what each of its jobs is to have; no job's target falls as
sigma grows, and the targets sum to sigma. Curves nest: a job is a curve of one, `Share` raises its children together,
`InOrder` one after the other. All are piecewise linear, so a `Path` keeps their corners only.

A path runs from `start` (n,) (what each job has already) to `cap` (n,) (the most it can reach), both in service.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gavel.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Corners of a curve: at group service `service[p]` (p,), strictly rising, `jobs[i]` is to have `targets[p, i]`."""

    jobs: IntArray
    service: FloatArray
    targets: FloatArray

    def at(self, service: FloatArray) -> FloatArray:
        """Targets (k, jobs) at each of `service` (k,), which is held to the path's ends."""
        if len(self.service) == 1:
            return np.repeat(self.targets, len(service), axis=0)
        held = np.clip(service, self.service[0], self.service[-1])
        left = np.clip(np.searchsorted(self.service, held, side="right") - 1, 0, len(self.service) - 2)
        part = (held - self.service[left]) / (self.service[left + 1] - self.service[left])
        targets: FloatArray = self.targets[left] + part[:, None] * (self.targets[left + 1] - self.targets[left])
        return targets

    def last_within(self, prices: FloatArray, bound: float) -> float:
        """The largest service at which the targets cost at most `bound` more than at the start, at `prices` >= 0."""
        cost = (self.targets - self.targets[0]) @ prices  # never falls along the path
        bound += 1e-12 * (1.0 + abs(bound))  # rounding must not lose a stretch on which the cost stays the same
        corner = int(np.searchsorted(cost, bound, side="right")) - 1
        if corner < 0:
            return float(self.service[0])
        if corner + 1 == len(cost):
            return float(self.service[-1])
        part = (bound - cost[corner]) / (cost[corner + 1] - cost[corner])
        return float(self.service[corner] + part * (self.service[corner + 1] - self.service[corner]))


@dataclass(frozen=True, slots=True, eq=False)
class Lateness:
    """The service of jobs that all have one finish-time fairness rho, as a function of the level 1 / rho.

    rho_i = (age_i + work_i / q_i) / isolated_i, where `work` (n,) is service times seconds still to be had, so that
    q_i = work_i t / (isolated_i - age_i t) at level t.
    """

    work: FloatArray
    age_s: FloatArray
    isolated_s: FloatArray

    def service(self, level: float | FloatArray) -> FloatArray:
        """Return q_i, (n,), or (k, n) for levels (k, 1); +inf where no service is enough."""
        return self.service_and_slope(level)[0]

    def service_and_slope(self, level: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return q_i as `service` does, and how fast it rises with the level; 0 where no service is enough."""
        left = self.isolated_s - self.age_s * level
        enough = left > 0
        left = np.where(enough, left, 1.0)
        per_left = self.work / left
        service = np.where(enough, per_left * level, np.inf)
        return service, np.where(enough, per_left * self.isolated_s / left, 0.0)

    def level(self, service: FloatArray) -> FloatArray:
        """Return the level at which each job has `service` (n,)."""
        levels: FloatArray = service * self.isolated_s / (self.work + service * self.age_s)
        return levels

    def of(self, jobs: IntArray) -> "Lateness":
        """The same of some of the jobs."""
        return Lateness(self.work[jobs], self.age_s[jobs], self.isolated_s[jobs])


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """Jobs that rise one after the other: each begins when all have risen by `before` (n,), and has `room` (n,)."""

    before: FloatArray
    room: FloatArray

    @staticmethod
    def of_room(room: FloatArray, order: IntArray | slice = slice(None)) -> "Turns":
        """The turns of jobs that have `room` (n,) to rise, in that `order` (n,)."""
        before = np.empty_like(room)
        before[order] = np.cumsum(room[order]) - room[order]
        return Turns(before, room)

    def risen(self, together: float | FloatArray) -> FloatArray:
        """Return how far each job has risen, (n,), when all have by `together`, one number or each job's own (n,)."""
        risen: FloatArray = np.clip(together - self.before, 0.0, self.room)
        return risen

    def slope(self, together: float | FloatArray) -> FloatArray:
        """Return 1 for the job in turn, 0 for the others, (n,)."""
        over = together - self.before
        return ((over > 0) & (over <= self.room)).astype(float)

    def of(self, jobs: IntArray) -> "Turns":
        """Some of the jobs, each still in its turn among all."""
        return Turns(self.before[jobs], self.room[jobs])


class Curve(Protocol):
    """Anything that can say how service is spread over its jobs."""

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """The way from `start` to `cap`, both (n,) over all jobs of the problem."""


@dataclass(frozen=True, slots=True)
class One:
    """A single job: it has all of its group's service."""

    job: int

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """From the job's start to its cap; one corner if it cannot rise."""
        ends = np.asarray([start[self.job], max(start[self.job], cap[self.job])])
        ends = ends[: 2 if ends[1] > ends[0] else 1]
        return Path(np.asarray([self.job]), ends, ends[:, None])


@dataclass(frozen=True, slots=True)
class Share:
    """Children rise together: service over weight is equal among all that are neither at their cap nor above it."""

    children: Sequence[Curve]
    weights: Sequence[float]

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """At level v each child has service weight * v, held to what it has and what it can reach."""
        paths = [child.path(start, cap) for child in self.children]
        corners = [path.service / weight for path, weight in zip(paths, self.weights, strict=True)]
        levels = np.unique(np.concatenate(corners))
        blocks = [path.at(weight * levels) for path, weight in zip(paths, self.weights, strict=True)]
        return _joined([path.jobs for path in paths], np.hstack(blocks))


@dataclass(frozen=True, slots=True)
class InOrder:
    """Children rise one after the other: the next begins when the one before is at its cap."""

    children: Sequence[Curve]

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """While a child rises, those before it are at their caps and those after it at their starts."""
        paths = [child.path(start, cap) for child in self.children]
        steps = [len(path.service) for path in paths]
        first = np.concatenate([[0], np.cumsum(steps)[:-1]])
        rows = np.arange(sum(steps))
        blocks = [
            path.targets[np.clip(rows - begin, 0, count - 1)]
            for path, begin, count in zip(paths, first, steps, strict=True)
        ]
        return _joined([path.jobs for path in paths], np.hstack(blocks))


@dataclass(frozen=True, slots=True, eq=False)
class Then:
    """`first` until each job has `enough` (n,) service, or its cap if that is less; from there on `second`.

    Both curves are over the same jobs.
    """

    first: Curve
    enough: FloatArray
    second: Curve

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """The way of `first` up to `enough`, then that of `second` up to `cap`."""
        head = self.first.path(start, np.maximum(start, np.minimum(cap, self.enough)))
        reached = start.copy()
        reached[head.jobs] = head.targets[-1]
        tail = self.second.path(reached, cap)
        column = {job: index for index, job in enumerate(head.jobs.tolist())}
        before = head.targets[:, [column[job] for job in tail.jobs.tolist()]]
        return _joined([tail.jobs], np.vstack([before, tail.targets]))


CORNERS_OF_EQUAL_RHO = 64


@dataclass(frozen=True, slots=True, eq=False)
class EqualRho:
    """Children are jobs that rise so that all have the same finish-time fairness rho, each within its start and cap.

    The numbers (k,) are those of a `Lateness`, which bends; it is followed through its own corners and
    CORNERS_OF_EQUAL_RHO more, exact at each of them.
    """

    jobs: IntArray
    work: FloatArray
    age_s: FloatArray
    isolated_s: FloatArray

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """From infinite rho to the least any job can reach."""
        low, high = start[self.jobs], np.maximum(start[self.jobs], cap[self.jobs])
        ends = [self.lateness.level(held) for held in (low, high)]
        bends = np.linspace(ends[0].min(), ends[1].max(), CORNERS_OF_EQUAL_RHO)
        levels = np.unique(np.concatenate([*ends, bends]))[:, None]
        return _joined([self.jobs], np.clip(self.lateness.service(levels), low, high))

    @property
    def lateness(self) -> Lateness:
        """The jobs' service at each level of 1 / rho."""
        return Lateness(self.work, self.age_s, self.isolated_s)


@dataclass(frozen=True, slots=True, eq=False)
class GroupsByRho:
    """Groups of jobs rise so that all groups have the same rho, each within its start and cap; jobs within by `within`.

    `lateness` (g,) says how late a group is as a whole: how a group spreads its service is nothing to the others.
    """

    within: Sequence[EqualRho]
    lateness: Lateness

    def path(self, start: FloatArray, cap: FloatArray) -> Path:
        """As `EqualRho`, through the corners of the groups besides."""
        paths = [curve.path(start, cap) for curve in self.within]
        low, high = (np.asarray([path.service[end] for path in paths]) for end in (0, -1))
        ends = [self.lateness.level(held) for held in (low, high)]
        own = [
            self.lateness.of(np.full(len(path.service), group)).level(path.service) for group, path in enumerate(paths)
        ]
        bends = np.linspace(ends[0].min(), ends[1].max(), CORNERS_OF_EQUAL_RHO)
        levels = np.unique(np.concatenate([*own, bends]))[:, None]
        parts = np.clip(self.lateness.service(levels), low, high)
        blocks = [path.at(part) for path, part in zip(paths, parts.T, strict=True)]
        return _joined([path.jobs for path in paths], np.hstack(blocks))


def _joined(jobs: list[IntArray], targets: FloatArray) -> Path:
    """One path of the children's targets; corners at which nobody has risen are dropped."""
    service = targets.sum(axis=1)
    rising = np.concatenate([[True], np.diff(np.maximum.accumulate(service)) > 0])
    return Path(np.concatenate(jobs), service[rising], targets[rising])
