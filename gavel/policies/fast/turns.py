"""Jobs served one after the other, in closed form: each takes the best types that those before it have left.

Where no job has equal rates on two types, the most that a job can make of the workers left is reached in one way: best
type first. So nobody who comes earlier could make room without being slower, and serving each in turn is the
lexicographic optimum. Runs of jobs whose best type has room are served at once; a job that finds its best type short
fills it, so there are at most m such runs.
"""

from dataclasses import replace

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, BoolArray, Certificate, FloatArray, IntArray

SOLVER = "closed form"
LEAST_APART = 1e-6  # relative: closer rates count as equal


def in_turn(problem: AllocationProblem, policy: str, order: IntArray, *, backfill: bool) -> Allocation | None:
    """Return the allocation that serves the jobs in `order` (n,); without `backfill` nobody behind the first held up.

    None where another method has to answer: for packed pairs, without workers, and where a job has equal rates on two
    types. `problem` is checked already. The certificate's gap is the most that a job could gain of what those before it
    leave.
    """
    if not measures.is_unpacked(problem) or not problem.capacity_workers.any():
        return None
    rates, scale = measures.rate_alone(problem)[order], problem.scale_factor[order].astype(float)
    if _has_equal_rates(rates):
        return None
    workers = problem.capacity_workers.astype(float)
    served, behind = _served(rates, scale, workers, backfill)
    fractions = np.zeros_like(served)
    fractions[order] = served
    gap = _most_missed(rates[:behind], scale[:behind], workers, served[:behind])
    certificate = Certificate(primal_violation=measures.violation(problem, fractions), dual_gap=gap)
    if not max(certificate.primal_violation, gap) <= MOST_VIOLATION:
        return None
    prices = {"types": list(problem.accelerator_types), "levels": _levels(scale, workers, served)}
    return replace(named(problem, fractions, certificate, policy, SOLVER), warm_start={"prices": prices})


def _levels(scale: FloatArray, workers: FloatArray, fractions: FloatArray) -> list[list[float]]:
    """Return the prices (m,) of each turn that used up a type: 1 for the types that were used up by it, else 0."""
    if not len(fractions):
        return []
    held = (scale[:, None] * fractions).cumsum(axis=0)
    is_full = held >= workers * (1 - MOST_VIOLATION)
    last = np.where(is_full.any(axis=0), is_full.argmax(axis=0), len(held))
    return [(last == turn).astype(float).tolist() for turn in np.unique(last[last < len(held)])]


def _has_equal_rates(rates: FloatArray) -> bool:
    """Whether some job has equal rates above zero on two of the types, rates (n, m)."""
    ordered = np.sort(rates, axis=1)
    slower, faster = ordered[:, :-1], ordered[:, 1:]
    return bool(((slower > 0) & (faster - slower <= LEAST_APART * faster)).any())


def _served(rates: FloatArray, scale: FloatArray, workers: FloatArray, backfill: bool) -> tuple[FloatArray, int]:
    """Return the fractions (n, m) of jobs in order, and how many jobs were looked at."""
    fractions, left, begin = np.zeros_like(rates), workers.copy(), 0
    while begin < len(rates) and left.any():
        wanted = rates[begin:] * (left > 0)
        kind, able = wanted.argmax(axis=1), wanted.any(axis=1)
        asked = np.zeros_like(wanted)
        rows = np.flatnonzero(able)
        asked[rows, kind[rows]] = scale[begin + rows]
        total = asked.cumsum(axis=0)
        short: BoolArray = np.any(total > left, axis=1)
        end = int(short.argmax()) if short.any() else len(short)
        fractions[begin : begin + end] = asked[:end] > 0
        if end == len(short):
            return fractions, len(rates)
        left = np.maximum(0.0, left - (total[end - 1] if end else 0.0))
        job = begin + end
        fractions[job], left = _best_of_rest(rates[job], scale[job], left)
        begin = job + 1
        if not backfill:
            return fractions, begin
    return fractions, len(rates)


def _best_of_rest(rates: FloatArray, scale: float, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the fractions (m,) of a job that takes its best types first, and the workers (m,) that it leaves."""
    fractions, left, time = np.zeros_like(rates), left.copy(), 1.0
    for kind in np.argsort(-rates):
        if rates[kind] <= 0 or time <= 0:
            break
        if left[kind] <= scale * time:
            fractions[kind], left[kind] = left[kind] / scale, 0.0
        else:
            fractions[kind], left[kind] = time, left[kind] - scale * time
        time -= fractions[kind]
    return fractions, left


def _most_missed(rates: FloatArray, scale: FloatArray, workers: FloatArray, fractions: FloatArray) -> float:
    """Return the most, over its best rate, that a job in order could gain of what those before it leave."""
    if not len(rates):
        return 0.0
    held = scale[:, None] * fractions
    left = np.maximum(0.0, workers - (held.cumsum(axis=0) - held))
    best_first = np.argsort(-rates, axis=1)
    room = np.take_along_axis(left / scale[:, None], best_first, axis=1).cumsum(axis=1)
    time = np.diff(np.minimum(1.0, room), axis=1, prepend=0.0)
    could = (np.take_along_axis(rates, best_first, axis=1) * time).sum(axis=1)
    best = np.maximum(rates.max(axis=1), 1e-300)
    return max(0.0, float(((could - (rates * fractions).sum(axis=1)) / best).max()))
