"""Caps in the price method: types are cut into segments, some of which are closed to the jobs that are capped.

Jobs that may hold no more than a part c of every type may use only a segment of that length. This loses nothing: jobs
without a cap can use every segment, so any allocation that is valid under the cap can be arranged so that the capped
jobs are in their segment. That holds for any number of caps whose segments are apart or within one another.

1. solve without caps; 2. give a segment to each cap that the answer breaks; 3. solve again, until none is broken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies.fast.envelope import Market
from gavel.policies.fast.water_filling import Filled
from gavel.policies.programs.program import MOST_VIOLATION
from gavel.types import BoolArray, FloatArray, IntArray

SHORTEST = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """The `jobs` (n,) of a market may hold together at most a `part` of every type of the whole cluster."""

    jobs: BoolArray
    part: float

    def among(self, some: IntArray) -> "Cap":
        """Return the cap in the market of `some` jobs."""
        return Cap(self.jobs[some], self.part)

    def is_broken(self, held: FloatArray, workers: FloatArray) -> bool:
        """Return whether the workers that the jobs hold, (m, n), exceed the part of `workers` (m,)."""
        together = held[:, self.jobs].sum(axis=1)
        return bool((together > self.part * workers * (1 + MOST_VIOLATION)).any())


def within(caps: Sequence[Cap], part: FloatArray, whole: Market, solve: Callable[[Market], Filled]) -> Filled:
    """Return the answer of `solve` for a `part` (m,) of the workers of `whole`, within the caps. Raises SolveFailed."""
    kept = list[Cap]()
    while True:
        cut, column_of = _cut(kept, part, whole)
        solution = solve(cut)
        folded = np.zeros(whole.rates.shape)
        np.add.at(folded, column_of, solution.fractions)
        held = whole.of_types(folded * whole.scale)
        over = [cap for cap in caps if cap.is_broken(held, whole.workers)]
        if not over:
            return replace(solution, fractions=folded)
        if any(cap in kept for cap in over):
            raise SolveFailed("a cap is broken by rounding")
        kept += over


@dataclass(slots=True, eq=False)
class _Segment:
    """Where the jobs of a cap are on each type, (m,); the next cap within it begins at `free`."""

    jobs: BoolArray
    begin: FloatArray
    end: FloatArray
    free: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.free = self.begin

    def taken(self, cap: Cap) -> "_Segment":
        """The segment of a cap on some of these jobs."""
        end = self.free + np.minimum(cap.part, self.end - self.begin)
        if (end > self.end + SHORTEST).any():
            raise SolveFailed("caps of more than there is have no segments apart")
        own = _Segment(cap.jobs, self.free, np.minimum(end, self.end))
        self.free = own.end
        return own


def _cut(caps: Sequence[Cap], part: FloatArray, market: Market) -> tuple[Market, IntArray]:
    """The market with every type in segments, each as long as it is on that type, and of which column each one is."""
    whole = _Segment(np.ones(len(market.scale), dtype=bool), np.zeros(len(part)), part)
    placed = [whole]
    for cap in sorted(caps, key=lambda cap: (-int(cap.jobs.sum()), -cap.part)):
        around = [each for each in placed if each.jobs[cap.jobs].all()]
        placed.append(around[-1].taken(cap))
    ends = np.sort([end for each in placed for end in (each.begin, each.end)], axis=0)  # of each type for itself
    is_open = np.concatenate([_open(placed, (low + high) / 2) for low, high in pairwise(ends)])
    length = np.concatenate([high - low for low, high in pairwise(ends)])
    there = length > SHORTEST
    type_of = np.tile(np.arange(len(part)), len(ends) - 1)[there]
    cut, column_of = market.of_segments(type_of, length[there] * market.workers[type_of])
    rates = cut.rates * is_open[there][cut.type_of_columns]
    if not rates.any(axis=0).all():
        raise SolveFailed("a cap leaves nothing to some jobs")
    return replace(cut, rates=rates), column_of


def _open(placed: Sequence[_Segment], places: FloatArray) -> BoolArray:
    """The jobs that may use a place of each type, (m, n): all but those of a cap whose segment is elsewhere."""
    everywhere: BoolArray = np.ones((len(places), len(placed[0].jobs)), dtype=bool)
    for each in placed:
        elsewhere = ~((each.begin < places) & (places < each.end))
        everywhere &= ~(elsewhere[:, None] & each.jobs)
    return everywhere
