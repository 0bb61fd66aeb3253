"""The question that is answered for elastic jobs, and its answer.

n jobs, m accelerator types, k sizes. A configuration is a type and a size; its number is `type * k + place of size`.
"""

from dataclasses import dataclass

import numpy as np

from gavel.types import FloatArray, IntArray

NOTHING = -1  # instead of a configuration: the job gets no workers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeProblem:
    """maximise sum_j U_j,c(j): one configuration of each job at most, within the workers of each type."""

    utility: FloatArray  # (n, m, k) what a job is worth in a configuration; 0 where it cannot have it
    sizes: IntArray  # (k,) workers, ascending
    capacity_workers: IntArray  # (m,)

    @property
    def flat(self) -> FloatArray:
        """Return the utilities by job and configuration, (n, m k)."""
        jobs, types, sizes = self.utility.shape
        return self.utility.reshape(jobs, types * sizes)

    @property
    def workers(self) -> IntArray:
        """Return the workers of each configuration, (m k,)."""
        return np.tile(self.sizes, len(self.capacity_workers))

    @property
    def type_of(self) -> IntArray:
        """Return the type of each configuration, (m k,)."""
        return np.repeat(np.arange(len(self.capacity_workers)), len(self.sizes))

    def held(self, configuration: IntArray) -> IntArray:
        """Return the workers of each type that n jobs hold in these configurations, (m,)."""
        given = configuration[configuration >= 0]
        held = np.bincount(self.type_of[given], weights=self.workers[given], minlength=len(self.capacity_workers))
        return held.astype(np.int64)

    def value(self, configuration: IntArray) -> float:
        """Return what n jobs are worth in these configurations."""
        rows = np.flatnonzero(configuration >= 0)
        return float(self.flat[rows, configuration[rows]].sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeChoice:
    """The configuration of each job, (n,), NOTHING for one that gets no workers; `value` is at most `bound`."""

    configuration: IntArray
    value: float
    bound: float  # no choice is worth more: weak duality at the prices that were found

    @property
    def gap(self) -> float:
        """Return how much better the best choice can be at most, as a part of the bound."""
        return 0.0 if self.bound <= 0 else max(0.0, 1.0 - self.value / self.bound)
