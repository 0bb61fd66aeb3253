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


def within(caps: Sequence[Cap], part: float, market: Market, solve: Callable[[Market], Filled]) -> Filled:
    """Return the answer of `solve` for `market`, a `part` of the cluster, within the caps. Raises SolveFailed."""
    workers, kept = market.workers / part, list[Cap]()
    while True:
        cut = _cut(kept, part, market, workers) if kept else market
        solution = solve(cut)
        folded = solution.fractions.reshape(-1, *market.rates.shape).sum(axis=0)
        over = [cap for cap in caps if cap.is_broken(folded * market.scale, workers)]
        if not over:
            return replace(solution, fractions=folded)
        if any(cap in kept for cap in over):
            raise SolveFailed("a cap is broken by rounding")
        kept += over


@dataclass(slots=True, eq=False)
class _Segment:
    """Where the jobs of a cap are; the next cap within it begins at `free`."""

    jobs: BoolArray
    begin: float
    end: float
    free: float = field(init=False)

    def __post_init__(self) -> None:
        self.free = self.begin

    def taken(self, cap: Cap) -> "_Segment":
        """The segment of a cap on some of these jobs."""
        end = self.free + min(cap.part, self.end - self.begin)
        if end > self.end + SHORTEST:
            raise SolveFailed("caps of more than there is have no segments apart")
        own = _Segment(cap.jobs, self.free, min(end, self.end))
        self.free = own.end
        return own


def _cut(caps: Sequence[Cap], part: float, market: Market, workers: FloatArray) -> Market:
    """The market with every type in segments, one block (m, n) of rates after the other."""
    whole = _Segment(np.ones(len(market.scale), dtype=bool), 0.0, part)
    placed = [whole]
    for cap in sorted(caps, key=lambda cap: (-int(cap.jobs.sum()), -cap.part)):
        around = [each for each in placed if each.jobs[cap.jobs].all()]
        placed.append(around[-1].taken(cap))
    ends = np.unique([end for each in placed for end in (each.begin, each.end)])
    pairs = [(low, high) for low, high in pairwise(ends.tolist()) if high - low > SHORTEST]
    opened = [_open(placed, (low + high) / 2) for low, high in pairs]
    rates = np.concatenate([market.rates * each for each in opened])
    if not rates.any(axis=0).all():
        raise SolveFailed("a cap leaves nothing to some jobs")
    return Market(rates, market.scale, np.concatenate([(high - low) * workers for low, high in pairs]))


def _open(placed: Sequence[_Segment], place: float) -> BoolArray:
    """The jobs that may use this place: all but those of a cap whose segment is elsewhere."""
    closed = [each.jobs for each in placed if not each.begin < place < each.end]
    everywhere: BoolArray = ~np.any([np.zeros_like(placed[0].jobs), *closed], axis=0)
    return everywhere
