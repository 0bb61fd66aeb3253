"""Target maps: what each job is to have at level t. Nondecreasing in t; the price method asks how far t can go.

A map rises from `start` (n,), what each job has already, to `cap` (n,), the most it can still reach. Value is service
(docs/policies.md) unless a policy says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gavel.policies.tiers.curves import Lateness, Turns
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
    """Jobs rise to an equal finish-time fairness rho, between start and cap; the level is 1 / rho."""

    lateness: Lateness
    start: FloatArray
    cap: FloatArray

    @property
    def end(self) -> float:
        """The level at which the last job is at its cap."""
        return float(self.lateness.level(self.cap).max(initial=0.0, where=self.cap > self.start))

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""
        return float(self.lateness.level(self.cap).min())

    def at(self, level: float) -> FloatArray:
        """The service that ends every job in time, between start and cap."""
        return self.at_and_slope(level)[0]

    def slope(self, level: float) -> FloatArray:
        """The derivative of the targets of those between start and cap."""
        return self.at_and_slope(level)[1]

    def at_and_slope(self, level: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Both, at one level or at each job's own (n,)."""
        wanted, slope = self.lateness.service_and_slope(level)
        rising = (wanted > self.start) & (wanted <= self.cap)
        return np.minimum(np.maximum(wanted, self.start), self.cap), np.where(rising, slope, 0.0)

    def of(self, jobs: IntArray) -> "EqualRho":
        """The map of these jobs alone."""
        return EqualRho(self.lateness.of(jobs), self.start[jobs], self.cap[jobs])


@dataclass(frozen=True, slots=True, eq=False)
class InOrder:
    """Jobs rise one after the other, each to its cap before the next begins; the level is their sum."""

    start: FloatArray
    turns: Turns

    @staticmethod
    def map(order: IntArray) -> TargetMap:
        """The target map of an order of jobs."""

        def between(start: FloatArray, cap: FloatArray) -> "InOrder":
            return InOrder(start, Turns.of_room(cap - start, order))

        return between

    @property
    def end(self) -> float:
        """The level at which the last job is at its cap."""
        room = self.turns.room
        return float((self.turns.before + room).max(initial=0.0, where=room > 0))

    @property
    def first_end(self) -> float:
        """The level at which the first job is at its cap."""
        return float((self.turns.before + self.turns.room).min())

    def at(self, level: float) -> FloatArray:
        """Full before the job in turn, untouched after it."""
        return self.start + self.turns.risen(level)

    def slope(self, level: float) -> FloatArray:
        """One for the job in turn."""
        return self.turns.slope(level)

    def of(self, jobs: IntArray) -> "InOrder":
        """These jobs, each still in its turn among all."""
        return InOrder(self.start[jobs], self.turns.of(jobs))
