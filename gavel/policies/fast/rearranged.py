"""Jobs rearranged inside what groups of them keep, by prices: the definition is `programs/rearranged.py`.

At prices p >= 0 of the types (and of the caps), and mu >= 0 of the service that a group keeps, a job is worth
max(0, max_j claim_ij + mu q_ij - s_i p_j); one that keeps service of its own is worth the most that a way of having
that is worth (`vertices.py`). The sum of all, plus p . N, less mu . S, bounds the total from above, and the best prices
attain it. At prices near the best nearly every job's choice is clear:

1. few jobs are placed at once, by a linear program; its multipliers are the prices;
2. many that are alike are asked as classes first (`rearranged_alike.py`); of many others the prices of a sample, with
   the workers and the service that its jobs have, are improved over all jobs (`rearranged_prices.py`); a job whose best
   choice is clearly ahead takes it, and the linear program places the others in what is left;
3. the total and its bound are the certificate; if they are apart, ask again with fewer clear choices.
"""

from collections.abc import Sequence

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.envelope import SizeColumns
from gavel.policies.fast.packed_totals import Floors, packed_greatest
from gavel.policies.fast.rearranged_alike import alike, by_classes
from gavel.policies.fast.rearranged_places import NOISE, clear, placed_beside
from gavel.policies.fast.rearranged_prices import prices_of_all
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.policies.fast.reduction import JobColumns
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.policies.tiers.rearranging import Kept
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

SOLVER = "prices"
AT_ONCE = 1_000  # jobs
BAND = 3e-4  # the relative margin within which a choice is unclear at first
MOST_ROUNDS = 8
EXACT = 1e-9  # relative distance to the bound
MOST_UNCLEAR = 20_000  # jobs; the linear program of 8,600 takes some seconds, the one that answers instead minutes


def rearranged_by_prices(
    problem: AllocationProblem, kept: Kept, start: FloatArray, caps: Sequence[tuple[IntArray, float]], policy: str
) -> Allocation | None:
    """Return the allocation of the greatest total of claims times relative speeds that leaves all what is `kept`.

    `start` (c, m) is an allocation that does, of jobs alone. None where the program has to answer: where the
    certificate is over 1e-6, and where packed pairs meet caps.
    """
    if not measures.is_alone(problem):
        return None if caps else _packed(problem, kept, policy)
    rows = np.flatnonzero(measures.runnable(problem))
    own = JobColumns.of(problem)
    answer = _solved(_asked(problem, own, kept, caps, rows), own.of_jobs(problem, start)[rows])
    if answer is None:
        return None
    chosen = np.zeros_like(own.rates)
    chosen[rows] = np.where(answer[0] < NOISE, 0.0, answer[0])
    fractions = own.of_combinations(problem, chosen)
    violation = measures.violation(problem, fractions)
    if not (violation <= MOST_VIOLATION and answer[1] <= MOST_VIOLATION):
        return None
    return named(problem, fractions, Certificate(primal_violation=violation, dual_gap=answer[1]), policy, SOLVER)


def _packed(problem: AllocationProblem, kept: Kept, policy: str) -> Allocation | None:
    per_step = measures.service_per_step(problem)
    floors = Floors.of_each(per_step, kept.least, kept.groups, kept.together)
    return packed_greatest(problem, kept.claim * measures.per_best_rate(problem), policy, floors)


def _asked(
    problem: AllocationProblem, own: JobColumns, kept: Kept, caps: Sequence[tuple[IntArray, float]], rows: IntArray
) -> Asked:
    jobs, workers = len(problem.job_ids), problem.capacity_workers.astype(float)
    gain = (kept.claim * measures.per_best_rate(problem))[:, None] * own.rates
    group = np.full(jobs, -1)
    for index, members in enumerate(kept.groups):
        group[members] = index
    among = np.zeros((len(caps), jobs), dtype=bool)
    for index, (capped, _) in enumerate(caps):
        among[index, capped] = True
    return Asked(
        columns=own.sizes or SizeColumns.of_one(len(workers)),
        gain=gain[rows] / gain.max(),
        service=(measures.service_per_step(problem)[:, None] * own.rates)[rows],
        scale=own.scale[rows].astype(float),
        group=group[rows],
        least=kept.least[rows],
        workers=workers,
        together=kept.together,
        among=among[:, rows],
        capped=np.asarray([part * workers for _, part in caps]).reshape(len(caps), len(workers)),
    )


def _solved(asked: Asked, start: FloatArray) -> tuple[FloatArray, float, Prices] | None:
    """Return fractions (k, m), their relative distance to the bound, and prices; None if they do not settle."""
    jobs = len(asked.scale)
    if jobs <= AT_ONCE:
        return _settled(asked, None, np.inf)
    kinds = alike(asked)
    if 2 * len(kinds.first) <= jobs:
        return by_classes(asked, kinds)
    prices = prices_of_all(asked, start)
    return None if prices is None else _settled(asked, prices, BAND)


def _settled(asked: Asked, prices: Prices | None, band: float) -> tuple[FloatArray, float, Prices] | None:
    """Steps 2 and 3."""
    for _ in range(MOST_ROUNDS):
        fractions, unclear = clear(asked, prices, band)
        if len(unclear) > MOST_UNCLEAR:
            return None
        answer = placed_beside(asked, fractions, unclear)
        if answer is not None:
            fractions, multipliers = answer
            # Of few jobs multipliers say little: the prices before may be better.
            prices = multipliers if prices is None else min(prices, multipliers, key=asked.bound)
            apart = asked.apart(fractions, prices)
            if apart <= EXACT:
                return fractions, max(0.0, apart), prices
        if len(unclear) == len(asked.scale):
            return None
        band *= 3
    return None
