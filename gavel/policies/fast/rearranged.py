"""Jobs rearranged inside what groups of them keep, by prices: the definition is `programs/rearranged.py`.

At prices p >= 0 of the types (and of the caps), and mu >= 0 of the service that a group keeps, a job is worth
max(0, max_j claim_ij + mu q_ij - s_i p_j). The sum of that, plus p . N, less mu . S, bounds the total from above, and
the best prices attain it. At prices near the best nearly every job's choice is clear:

1. few jobs are placed at once, by a linear program; its multipliers are the prices;
2. of many, a sample is asked first, with the workers and the service that its jobs have; a job whose best choice is
   clearly ahead at the sample's prices takes it, and the linear program places the others in what is left;
3. the total and its bound are the certificate; if they are apart, ask again with fewer clear choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast import simplex
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.policies.tiers.rearranging import Kept
from gavel.types import Allocation, AllocationProblem, BoolArray, Certificate, FloatArray, IntArray

SOLVER = "prices"
AT_ONCE = 2_000  # jobs
SAMPLE_EVERY = 4
BAND = 3.0  # over the square root of the sampled jobs: the relative margin within which a choice is unclear
MOST_ROUNDS = 8
HALVINGS = 24
MOST_UNCLEAR = 6_000  # jobs; with more the linear program takes seconds
EXACT = 1e-9  # relative distance to the bound
NOISE = 1e-10  # less of a job's time than this is rounding


class _Prices(NamedTuple):
    """Of the workers of each type (m,), of the service of each group (g,), and of the workers under each cap (c, m)."""

    workers: FloatArray
    together: FloatArray
    caps: FloatArray


@dataclass(frozen=True, eq=False)
class _Asked:
    """k jobs: what their time is worth (`gain`) and gives (`service`) on each type (k, m), and what they have to keep.

    `scale` (k,): workers of each; `group` (k,): that of each, -1 for none; `least` (k,): service of each. `workers`
    (m,) and `together` (g,): all there are, and what each group keeps. `among` (c, k): who is under each cap, and
    `capped` (c, m) its workers.
    """

    gain: FloatArray
    service: FloatArray
    scale: FloatArray
    group: IntArray
    least: FloatArray
    workers: FloatArray
    together: FloatArray
    among: BoolArray
    capped: FloatArray

    def of(self, jobs: IntArray, left: tuple[FloatArray, FloatArray, FloatArray]) -> "_Asked":
        """Return the question of these jobs, with these workers, service of groups, and workers under caps."""
        own = (self.gain[jobs], self.service[jobs], self.scale[jobs], self.group[jobs], self.least[jobs])
        return _Asked(*own, left[0], left[1], self.among[:, jobs], left[2])

    def used(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the workers, the service of groups, and the workers under caps that `fractions` (k, m) come to."""
        held, grouped = self.scale[:, None] * fractions, self.group >= 0
        got = (self.service * fractions).sum(axis=1)
        served = np.bincount(self.group[grouped], got[grouped], minlength=len(self.together)).astype(np.float64)
        return held.sum(axis=0), served, self.among.astype(float) @ held

    def left(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what `fractions` (k, m) leave: of workers, of what groups have to keep, of workers under caps."""
        workers, served, capped = self.used(fractions)
        return self.workers - workers, self.together - served, self.capped - capped

    def worth(self, prices: _Prices, demand: FloatArray | None = None) -> FloatArray:
        """Return what each job's time is worth beyond its price, (k, m); `demand` (k,) is that of its own least."""
        of_service = np.append(prices.together, 0.0)[self.group] + (0.0 if demand is None else demand)
        paid = self.scale[:, None] * (prices.workers + self.among.T.astype(float) @ prices.caps)
        return np.where(self.service > 0, self.gain + of_service[:, None] * self.service - paid, -np.inf)

    def bound(self, prices: _Prices, demand: FloatArray) -> float:
        """Return a total of gains that no valid allocation exceeds."""
        most = np.maximum(0.0, self.worth(prices, demand).max(axis=1)).sum()
        kept = prices.together @ self.together + demand @ self.least
        return float(most + prices.workers @ self.workers + (prices.caps * self.capped).sum() - kept)


def rearranged_by_prices(
    problem: AllocationProblem, kept: Kept, start: FloatArray, caps: Sequence[tuple[IntArray, float]], policy: str
) -> Allocation | None:
    """Return the allocation of the greatest total of claims times relative speeds that leaves all what is `kept`.

    `start` (n, m) is an allocation that does. None where the program has to answer: for packed pairs, and where the
    certificate is over 1e-6.
    """
    if not measures.is_unpacked(problem):
        return None
    rows = np.flatnonzero(measures.runnable(problem))
    asked = _asked(problem, kept, caps, rows)
    answer = _solved(asked, start[rows])
    if answer is None:
        return None
    fractions = np.zeros_like(start)
    fractions[rows] = np.where(answer[0] < NOISE, 0.0, answer[0])
    violation = measures.violation(problem, fractions)
    if not (violation <= MOST_VIOLATION and answer[1] <= MOST_VIOLATION):
        return None
    return named(problem, fractions, Certificate(primal_violation=violation, dual_gap=answer[1]), policy, SOLVER)


def _asked(problem: AllocationProblem, kept: Kept, caps: Sequence[tuple[IntArray, float]], rows: IntArray) -> _Asked:
    jobs, workers = len(problem.job_ids), problem.capacity_workers.astype(float)
    rates = measures.rate_alone(problem)
    gain = (kept.claim * measures.per_best_rate(problem))[:, None] * rates
    group = np.full(jobs, -1)
    for index, own in enumerate(kept.groups):
        group[own] = index
    among = np.zeros((len(caps), jobs), dtype=bool)
    for index, (own, _) in enumerate(caps):
        among[index, own] = True
    return _Asked(
        gain=gain[rows] / gain.max(),
        service=(measures.service_per_step(problem)[:, None] * rates)[rows],
        scale=problem.scale_factor[rows].astype(float),
        group=group[rows],
        least=kept.least[rows],
        workers=workers,
        together=kept.together,
        among=among[:, rows],
        capped=np.asarray([part * workers for _, part in caps]).reshape(len(caps), len(workers)),
    )


def _solved(asked: _Asked, start: FloatArray) -> tuple[FloatArray, float, _Prices] | None:
    """Return fractions (k, m), their relative distance to the bound, and prices; None if they do not settle."""
    jobs = len(asked.scale)
    if jobs <= AT_ONCE:
        return _settled(asked, None, np.inf)
    order = np.lexsort((asked.gain.max(axis=1), asked.group))
    sample = np.sort(order[::SAMPLE_EVERY])
    held = asked.of(sample, asked.left(np.zeros_like(start))).used(start[sample])
    rough = _solved(asked.of(sample, held), start[sample])
    return None if rough is None else _settled(asked, _balanced(asked, rough[2]), BAND / np.sqrt(len(sample)))


def _balanced(asked: _Asked, prices: _Prices) -> _Prices:
    """Return `prices` with those of the groups' service at which each group just has what it keeps."""
    low = np.zeros(len(asked.together))
    high = np.full(len(low), 2 * float(prices.together.max(initial=0.0)) + 1e-3)
    every = np.arange(len(asked.scale))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        worth = asked.worth(prices._replace(together=middle))
        chosen = worth.argmax(axis=1)
        served = np.where(worth[every, chosen] > 0, asked.service[every, chosen], 0.0)
        grouped = asked.group >= 0
        enough = np.bincount(asked.group[grouped], served[grouped], minlength=len(low)) >= asked.together
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return prices._replace(together=high)


def _settled(asked: _Asked, prices: _Prices | None, band: float) -> tuple[FloatArray, float, _Prices] | None:
    """Steps 2 and 3."""
    for _ in range(MOST_ROUNDS):
        fractions, unclear = _clear(asked, prices, band)
        if len(unclear) > MOST_UNCLEAR:
            return None
        placed = _placed(asked.of(unclear, asked.left(fractions)))
        if placed is not None:
            fractions[unclear], prices, demand = placed
            of_all = np.zeros(len(asked.scale))
            of_all[unclear] = demand
            bound = asked.bound(prices, of_all)
            apart = (bound - float((asked.gain * fractions).sum())) / max(bound, 1e-300)
            if apart <= EXACT:
                return fractions, max(0.0, apart), prices
        if len(unclear) == len(asked.scale):
            return None
        band *= 3
    return None


def _clear(asked: _Asked, prices: _Prices | None, band: float) -> tuple[FloatArray, IntArray]:
    """Return the fractions (k, m) of jobs whose choice is clear at `prices`, and the rows of the others."""
    fractions = np.zeros_like(asked.gain)
    if prices is None:
        return fractions, np.arange(len(asked.scale))
    worth = asked.worth(prices)
    chosen, every = worth.argmax(axis=1), np.arange(len(worth))
    ordered = np.sort(np.column_stack([worth, np.zeros(len(worth))]), axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > band * asked.gain.max(axis=1)
    runs = worth.max(axis=1) > 0
    clear &= np.where(runs, asked.service[every, chosen], 0.0) >= asked.least
    taken = np.flatnonzero(clear & runs)
    fractions[taken, chosen[taken]] = 1.0
    return fractions, np.flatnonzero(~clear)


def _placed(asked: _Asked) -> tuple[FloatArray, _Prices, FloatArray] | None:
    """Return the best fractions (k, m), the prices, and that of each job's own least; None if they cannot be kept."""
    rows, kinds = np.nonzero(asked.service)
    k, (c, m), g = len(asked.scale), asked.capped.shape, len(asked.together)
    asking = np.flatnonzero(asked.least)
    matrix = _constraints(asked, rows, kinds, asking)
    free = np.full(k + m, -np.inf)
    least = np.concatenate([asked.together, asked.least[asking]])
    lower = np.concatenate([free, least, np.full(c * m, -np.inf)])
    upper = np.concatenate([np.ones(k), asked.workers, np.full(len(least), np.inf), asked.capped.ravel()])
    if (asked.workers < -NOISE).any() or (asked.capped < -NOISE).any():
        return None
    try:
        x, prices = simplex.least(
            matrix, -asked.gain[rows, kinds], np.zeros(len(rows)), (lower, np.maximum(0.0, upper))
        )
    except SolveFailed:
        return None
    fractions, demand = np.zeros_like(asked.gain), np.zeros(k)
    fractions[rows, kinds] = np.clip(x, 0.0, 1.0)
    _, of_types, of_groups, of_jobs, of_caps = np.split(prices, np.cumsum([k, m, g, len(asking)]))
    demand[asking] = np.maximum(0.0, of_jobs)
    caps = np.maximum(0.0, -of_caps).reshape(c, m)
    return fractions, _Prices(np.maximum(0.0, -of_types), np.maximum(0.0, of_groups), caps), demand


def _constraints(asked: _Asked, rows: IntArray, kinds: IntArray, asking: IntArray) -> simplex.ByColumn:
    """One column for each type that a job can use; rows: time, workers, service of groups, of jobs, workers capped."""
    k, (c, m), g = len(asked.scale), asked.capped.shape, len(asked.together)
    own = np.full(k, -1)
    own[asking] = k + m + g + np.arange(len(asking))
    after = k + m + g + len(asking)
    group = asked.group[rows]
    capped = [np.where(asked.among[cap, rows], after + cap * m + kinds, -1) for cap in range(c)]
    places = np.column_stack([rows, k + kinds, np.where(group >= 0, k + m + group, -1), own[rows], *capped])
    service, scale = asked.service[rows, kinds], asked.scale[rows]
    values = np.column_stack([np.ones(len(rows)), scale, service, service, *[scale] * c])
    used = places >= 0
    starts = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return simplex.ByColumn(after + c * m, starts, places[used], values[used])
