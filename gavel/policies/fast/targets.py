"""Target maps: what each job is to have at level t. Nondecreasing in t; the price method asks how far t can go.

A map rises from `start` (n,), what each job has already, to `cap` (n,), the most it can still reach. Value is service
(docs/policies.md) unless a policy says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gavel.types import FloatArray, IntArray


class Targets(Protocol):
    """A target map between its start and its cap."""

    @property
    def end(self) -> float:
        """The least level at which every job is at its cap; 0 if none can rise."""

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""

    def at(self, level: float) -> FloatArray:
        """Targets (n,)."""

    def slope(self, level: float) -> FloatArray:
        """How fast each target (n,) rises just below the level."""

    def of(self, jobs: IntArray) -> "Targets":
        """The map of these jobs alone."""


TargetMap = Callable[[FloatArray, FloatArray], Targets]
"""(start, cap) -> the map between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Even:
    """Jobs rise together, `weight` (n,) a level: least attained service, and makespan with the work left as weight."""

    weight: FloatArray
    start: FloatArray
    cap: FloatArray

    @property
    def end(self) -> float:
        """The level at which the last job is at its cap."""
        rising = self.cap > self.start
        return float((self.cap / self.weight).max(initial=0.0, where=rising))

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""
        return float((self.cap / self.weight).min())

    def at(self, level: float) -> FloatArray:
        """Weight times level, between start and cap."""
        wanted: FloatArray = np.clip(self.weight * level, self.start, self.cap)
        return wanted

    def slope(self, level: float) -> FloatArray:
        """The weight of those who are between start and cap."""
        wanted = self.weight * level
        return np.where((wanted > self.start) & (wanted <= self.cap), self.weight, 0.0)

    def of(self, jobs: IntArray) -> "Even":
        """The map of these jobs alone."""
        return Even(self.weight[jobs], self.start[jobs], self.cap[jobs])


@dataclass(frozen=True, slots=True, eq=False)
class EqualRho:
    """Jobs rise to an equal finish-time fairness rho; the level is 1 / rho.

    rho_i = (age_i + work_i / q_i) / isolated_i, so q_i = work_i t / (isolated_i - age_i t), between start and cap.
    """

    work: FloatArray
    age_s: FloatArray
    isolated_s: FloatArray
    start: FloatArray
    cap: FloatArray

    @property
    def end(self) -> float:
        """The level at which the last job is at its cap."""
        return float(self._ends().max(initial=0.0, where=self.cap > self.start))

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""
        return float(self._ends().min())

    def at(self, level: float) -> FloatArray:
        """The service that ends every job in time, between start and cap."""
        wanted: FloatArray = np.clip(self._wanted(level), self.start, self.cap)
        return wanted

    def slope(self, level: float) -> FloatArray:
        """The derivative of the targets of those between start and cap."""
        wanted = self._wanted(level)
        rising = (wanted > self.start) & (wanted <= self.cap)
        left = np.where(rising, self.isolated_s - self.age_s * level, 1.0)
        return np.where(rising, self.work * self.isolated_s / left**2, 0.0)

    def of(self, jobs: IntArray) -> "EqualRho":
        """The map of these jobs alone."""
        picked = (each[jobs] for each in (self.work, self.age_s, self.isolated_s, self.start, self.cap))
        return EqualRho(*picked)

    def _ends(self) -> FloatArray:
        levels: FloatArray = self.cap * self.isolated_s / (self.work + self.cap * self.age_s)
        return levels

    def _wanted(self, level: float) -> FloatArray:
        left = self.isolated_s - self.age_s * level
        return np.divide(self.work * level, left, out=np.full_like(left, np.inf), where=left > 0)


@dataclass(frozen=True, slots=True, eq=False)
class InOrder:
    """Jobs rise one after the other, each to its cap before the next begins; the level is their sum.

    `before` (n,): the level at which each begins.
    """

    start: FloatArray
    cap: FloatArray
    before: FloatArray

    @staticmethod
    def map(order: IntArray) -> TargetMap:
        """The target map of an order of jobs."""

        def between(start: FloatArray, cap: FloatArray) -> "InOrder":
            room = (cap - start)[order]
            before = np.empty_like(start)
            before[order] = np.cumsum(room) - room
            return InOrder(start, cap, before)

        return between

    @property
    def end(self) -> float:
        """The level at which the last job is at its cap."""
        room = self.cap - self.start
        return float((self.before + room).max(initial=0.0, where=room > 0))

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""
        return float((self.before + self.cap - self.start).min())

    def at(self, level: float) -> FloatArray:
        """Full before the job in turn, untouched after it."""
        targets: FloatArray = self.start + np.clip(level - self.before, 0.0, self.cap - self.start)
        return targets

    def slope(self, level: float) -> FloatArray:
        """One for the job in turn."""
        risen = level - self.before
        return ((risen > 0) & (risen <= self.cap - self.start)).astype(float)

    def of(self, jobs: IntArray) -> "InOrder":
        """These jobs, each still in its turn among all."""
        return InOrder(self.start[jobs], self.cap[jobs], self.before[jobs])
