"""The question which jobs of each group go first, in numbers; `rearranged.py` answers it."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gavel.policies.fast.envelope import SizeColumns
from gavel.policies.fast.vertices import Vertices, best
from gavel.types import BoolArray, FloatArray, IntArray


class Prices(NamedTuple):
    """Of the workers of each type (m,), of the service of each group (g,), and of the workers under each cap (c, m)."""

    workers: FloatArray
    together: FloatArray
    caps: FloatArray


@dataclass(frozen=True, eq=False)
class Asked:
    """k jobs: what their time is worth (`gain`) and gives (`service`) by column, (k, q), and what they have to keep.

    `columns` says of which type a column is, and how many workers of it a job of scale 1 holds there: one column for
    each type, or one for each type and size. `scale` (k,): workers of each, or 1; `group` (k,): that of each, -1 for
    none; `least` (k,): service of each. `workers` (m,) and `together` (g,): all there are, and what each group keeps.
    `among` (c, k): who is under each cap, and `capped` (c, m) its workers.
    """

    columns: SizeColumns

    gain: FloatArray
    service: FloatArray
    scale: FloatArray
    group: IntArray
    least: FloatArray
    workers: FloatArray
    together: FloatArray
    among: BoolArray
    capped: FloatArray

    def of(self, jobs: IntArray, left: tuple[FloatArray, FloatArray, FloatArray]) -> "Asked":
        """Return the question of these jobs, with these workers, service of groups, and workers under caps."""
        own = (self.gain[jobs], self.service[jobs], self.scale[jobs], self.group[jobs], self.least[jobs])
        return Asked(self.columns, *own, left[0], left[1], self.among[:, jobs], left[2])

    def held(self, fractions: FloatArray) -> FloatArray:
        """Return the workers of each type that jobs hold with `fractions` (k, q), (k, m)."""
        return self.columns.of_types((self.scale[:, None] * fractions).T).T

    def used(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the workers, the service of groups, and the workers under caps that `fractions` (k, q) come to."""
        held, grouped = self.held(fractions), self.group >= 0
        got = (self.service * fractions).sum(axis=1)
        served = np.bincount(self.group[grouped], got[grouped], minlength=len(self.together)).astype(np.float64)
        return held.sum(axis=0), served, self.among.astype(float) @ held

    def left(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what `fractions` (k, q) leave: of workers, of what groups have to keep, of workers under caps."""
        workers, served, capped = self.used(fractions)
        return self.workers - workers, self.together - served, self.capped - capped

    @cached_property
    def vertices(self) -> Vertices:
        """The ways in which each job that keeps service of its own has that."""
        return Vertices.listed(self.service, self.service > 0, self.least)

    def worth(self, prices: Prices) -> FloatArray:
        """Return what each job's time is worth beyond its price, (k, q); minus infinity where it cannot run."""
        of_service = np.append(prices.together, 0.0)[self.group]
        of_types = prices.workers + self.among.T.astype(float) @ prices.caps
        paid = self.scale[:, None] * self.columns.of_columns(of_types)
        return np.where(self.service > 0, self.gain + of_service[:, None] * self.service - paid, -np.inf)

    def apart(self, fractions: FloatArray, prices: Prices) -> float:
        """Return how far the total of `fractions` (k, q) is below its bound, as a part of it."""
        bound = self.bound(prices)
        return (bound - float((self.gain * fractions).sum())) / max(bound, 1e-300)

    def bound(self, prices: Prices) -> float:
        """Return a total of gains that no valid allocation exceeds."""
        _, most, _ = best(self.worth(prices), self.vertices)
        capped = (prices.caps * self.capped).sum()
        return float(most.sum() + prices.workers @ self.workers + capped - prices.together @ self.together)
