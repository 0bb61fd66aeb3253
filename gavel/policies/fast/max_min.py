"""The policies of the max-min family by prices: each is a target map. All give None where the program has to answer.

Problems are checked already. Only numbers that an objective looks at tell jobs apart (`_classes`): every job is one of
its own where the work left or the order matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.caps import Cap, within
from gavel.policies.fast.curve_evaluation import along
from gavel.policies.fast.envelope import Market
from gavel.policies.fast.face import MOST_JOBS, greatest_beside
from gavel.policies.fast.price_search import Guess
from gavel.policies.fast.reduction import Reduced, answered
from gavel.policies.fast.targets import EqualRho, Even, InOrder, TargetMap, Targets
from gavel.policies.fast.water_filling import Filled, fill
from gavel.policies.tiers.curves import Curve, Lateness
from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray, IntArray


def evenly(problem: AllocationProblem, policy: str, weight: FloatArray, *, whole: bool) -> Allocation | None:
    """Raise service over `weight` (n,) evenly: max-min fairness; with the work left as weight, makespan.

    With `whole` False no further than the first job can go.
    """

    def solve(reduced: Reduced, guesses: Sequence[Guess]) -> Filled:
        rising = _even(weight[reduced.first])
        if whole:
            return fill(reduced.market, rising, guesses=guesses)
        return fill(reduced.market, _until_first_end(rising), levels=1, guesses=guesses)

    return answered(problem, policy, solve, [weight])


def evenly_then_most(problem: AllocationProblem, policy: str, weight: FloatArray) -> Allocation | None:
    """Raise service over `weight` (n,) evenly as far as the first job can go; then the greatest total times weight.

    With more than MOST_JOBS different jobs the rest is shared by water filling, which is one of the same optima.
    """

    def solve(reduced: Reduced, guesses: Sequence[Guess]) -> Filled:
        claim = weight[reduced.first]
        rising = _even(claim)
        if len(claim) > MOST_JOBS:
            return fill(reduced.market, rising, guesses=guesses)
        filled = fill(reduced.market, _until_first_end(rising), levels=1, guesses=guesses)
        if filled.is_only_one:
            return filled
        most = greatest_beside(reduced.market, claim * reduced.count, filled.value)
        return replace(filled, value=most.value, fractions=most.fractions, apart=most.gap)

    return answered(problem, policy, solve, [weight])


def equally_late(
    problem: AllocationProblem, policy: str, isolated_s: FloatArray, *, backfill: bool
) -> Allocation | None:
    """Minimise the worst finish-time fairness against `isolated_s` (n,); what is left is shared evenly by weight."""
    work = measures.service_per_step(problem) * np.maximum(1.0, problem.steps_remaining)

    def solve(reduced: Reduced, guesses: Sequence[Guess]) -> Filled:
        first = reduced.first

        def by_rho(start: FloatArray, cap: FloatArray) -> Targets:
            return EqualRho(Lateness(work[first], problem.age_s[first], isolated_s[first]), start, cap)

        fair = _until_first_end(by_rho)
        if not backfill:
            return fill(reduced.market, fair, levels=1, guesses=guesses)
        return fill(reduced.market, fair, _even(problem.weight[first]), guesses=guesses)

    return answered(problem, policy, solve, [work, problem.age_s, isolated_s, problem.weight])


def in_order(problem: AllocationProblem, policy: str, order: IntArray, *, backfill: bool) -> Allocation | None:
    """Serve the jobs one after the other in `order` (n,); without `backfill` none after the first that is held up."""
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order))

    def solve(reduced: Reduced, guesses: Sequence[Guess]) -> Filled:
        rising = InOrder.map(np.argsort(turn[reduced.first]))
        return fill(reduced.market, rising, levels=None if backfill else 1, guesses=guesses)

    return answered(problem, policy, solve, [turn])


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Some `jobs` (rows), the `curve` along which they rise, and the `part` (m,) of each type's workers that they have.

    The default is all workers.
    """

    jobs: IntArray
    curve: Curve
    part: FloatArray | None = None


def by_curves(
    problem: AllocationProblem, policy: str, stages: Sequence[Stage], caps: Sequence[tuple[IntArray, float]]
) -> Allocation | None:
    """Raise service along the curve of each stage, from what was reached before; the last one is the whole cluster's.

    `caps`: rows of jobs, and the part of every type's workers that they hold together at most. None where the program
    has to answer.
    """
    every = np.arange(len(problem.job_ids))

    def solve(reduced: Reduced, guesses: Sequence[Guess]) -> Filled:
        rows = reduced.first
        value, limits = np.zeros(len(rows)), [Cap(_are_among(rows, jobs), most) for jobs, most in caps]
        for stage in stages:
            whole, part = _some_types(reduced, stage)
            theirs = np.flatnonzero(_are_among(rows, stage.jobs) & whole.rates.any(axis=0))
            if not len(theirs):
                continue
            rising = along(stage.curve, len(every), rows[theirs])
            stage_guesses = guesses if stage is stages[-1] else ()
            own, fill_by = [cap.among(theirs) for cap in limits], partial(_filled, rising, value[theirs], stage_guesses)
            filled = within(own, part, whole.of(theirs), fill_by)
            value[theirs] = filled.value
        return filled

    return answered(problem, policy, solve, [every])


def _some_types(reduced: Reduced, stage: Stage) -> tuple[Market, FloatArray]:
    """The whole market on the types of which the stage has a part, and that part of each."""
    market = reduced.market
    if stage.part is None:
        return market, np.ones(len(reduced.types))
    part = stage.part[reduced.types]
    has = np.flatnonzero(part > 0)
    return market.of_segments(has, market.workers[has])[0], part[has]


def _are_among(rows: IntArray, jobs: IntArray) -> BoolArray:
    """Which of the `rows` (k,) are among the `jobs`."""
    among = np.zeros(max(rows.max(initial=0), jobs.max(initial=0)) + 1, dtype=bool)
    among[jobs] = True
    return among[rows]


def _filled(rising: TargetMap, start: FloatArray, guesses: Sequence[Guess], market: Market) -> Filled:
    """Fill the market; guesses for other types (before they were cut into segments) are left out."""
    fitting = [guess for guess in guesses if len(guess.prices) == len(market.workers)]
    return fill(market, rising, start=start, guesses=fitting)


def _even(weight: FloatArray) -> TargetMap:
    def rising(start: FloatArray, cap: FloatArray) -> Targets:
        return Even(weight, start, cap)

    return rising


def _until_first_end(target_map: TargetMap) -> TargetMap:
    """The same map, ended for everybody where the first job is at its cap."""

    def ended(start: FloatArray, cap: FloatArray) -> Targets:
        whole = target_map(start, cap)
        return target_map(start, whole.at(whole.first_end))

    return ended
