"""Which unmeasured (job, accelerator type) pairs are worth a profiling round: those that may change the allocation.

A job is sent to a type when its advantage there, log(rate) less its mean over the types, is among the largest of all
jobs, as many as the type's share of the cluster holds. Measuring is worth the expected gain from deciding that with the
truth instead of the estimate (the knowledge gradient of Frazier, Powell and Dayanik, SIAM J. Control Optim. '08), times
the accelerator time that jobs of the kind still have to run, over what the measurement costs.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from gavel.estimator.colocation import Completed
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, AllocationProblem, FloatArray, Job, JobId, JobSpec

Pair = tuple[JobId, AcceleratorType]
Estimate = Callable[[JobSpec, Sequence[AcceleratorType]], tuple[ThroughputEstimate, ...]]

LEAST_GAIN = 0.001  # of a job's rate, below which nothing is worth knowing


def worth_profiling(
    candidates: Sequence[Pair],
    jobs: Sequence[Job],
    problem: AllocationProblem,
    estimate: Estimate,
    *,
    budget_s: float,
) -> tuple[Pair, ...]:
    """The candidates to profile this round, best first; their accelerator-seconds stay within the budget.

    `jobs` are the rows of the problem. One job of a kind and size measures a type for all others. A profiling lease
    costs its gang one round.
    """
    if not candidates:
        return ()
    gain, work_s = _gains(jobs, problem, estimate), _work_s(jobs, problem)
    row_of = {job.id: row for row, job in enumerate(jobs)}
    column_of = {name: column for column, name in enumerate(problem.accelerator_types)}

    def value(pair: Pair) -> float:
        row = row_of[pair[0]]
        cost_s = problem.round_duration_s * jobs[row].spec.scale_factor
        return float(gain[row, column_of[pair[1]]] * work_s[row] / cost_s)

    chosen: list[Pair] = []
    measuring: set[tuple[str, int, AcceleratorType]] = set()
    left_s = budget_s
    for pair in sorted(candidates, key=lambda pair: (-value(pair), pair)):
        row, column = row_of[pair[0]], column_of[pair[1]]
        spec = jobs[row].spec
        key = spec.kind, spec.scale_factor, pair[1]
        cost_s = problem.round_duration_s * spec.scale_factor
        if key in measuring or cost_s > left_s or gain[row, column] < LEAST_GAIN:
            continue
        measuring.add(key)
        chosen.append(pair)
        left_s -= cost_s
    return tuple(chosen)


def pairs_worth_trying(found: Completed, *, most: int) -> tuple[tuple[int, int, int], ...]:
    """(type, kind, kind) of at most so many pairs, best first, whose measurement may change whether they are packed.

    Packing pays when the two normalised rates add up to more than 1: what may cross that line is worth trying.
    """
    total = found.rate + np.transpose(found.rate, (0, 2, 1))
    deviation = np.hypot(found.deviation, np.transpose(found.deviation, (0, 2, 1)))
    gain = expected_gain(total, np.ones_like(total), deviation)
    rows = [(float(gain[t, a, b]), (t, a, b)) for t, a, b in np.ndindex(*gain.shape) if a <= b]
    ordered = sorted(rows, key=lambda row: (-row[0], row[1]))
    return tuple(pair for worth, pair in ordered[:most] if worth >= LEAST_GAIN)


def expected_gain(advantage: FloatArray, threshold: FloatArray, deviation: FloatArray) -> FloatArray:
    """Mean gain, in logarithms of the rate, from knowing on which side of the threshold a job's advantage lies."""
    deviation = np.maximum(deviation, 1e-9)
    z = np.abs(advantage - threshold) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * np.vectorize(math.erfc, otypes=[float])(z / math.sqrt(2))
    gain: FloatArray = deviation * (density - z * below)
    return gain


def _gains(jobs: Sequence[Job], problem: AllocationProblem, estimate: Estimate) -> FloatArray:
    """Of measuring each job on each type, (n, m)."""
    believed = [estimate(job.spec, problem.accelerator_types) for job in jobs]
    log_rate = np.log([[each.steps_per_s for each in row] for row in believed])
    deviation = np.array([[each.relative_error for each in row] for row in believed])
    advantage = log_rate - log_rate.mean(axis=1, keepdims=True)
    share = problem.capacity_workers / max(1, problem.capacity_workers.sum())
    ordered = np.sort(advantage, axis=0)
    last_in = np.clip(np.ceil((1 - share) * len(jobs)).astype(int), 0, len(jobs) - 1)
    threshold = ordered[last_in, np.arange(len(share))]
    return expected_gain(advantage, threshold, deviation)


def _work_s(jobs: Sequence[Job], problem: AllocationProblem) -> FloatArray:
    """Accelerator-seconds that jobs of the same kind and size still have to run, on their best type, (n,)."""
    best = np.maximum(problem.throughput_steps_per_s[: len(jobs), 0].max(axis=1), 1e-12)
    own = problem.steps_remaining / best * problem.scale_factor
    total: dict[tuple[str, int], float] = {}
    for job, seconds in zip(jobs, own, strict=True):
        key = job.spec.kind, job.spec.scale_factor
        total[key] = total.get(key, 0.0) + float(seconds)
    return np.array([total[job.spec.kind, job.spec.scale_factor] for job in jobs])
