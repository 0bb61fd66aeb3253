"""The choice of unmeasured (job, accelerator type) pairs for profiling: those that may change the allocation.

A job is sent to a type when its advantage there, log(rate) less its mean over the types, is among the largest of all
jobs, as many as the type's share of the cluster holds; the threshold lies between the last in and the first out.
Measuring is worth the expected gain from deciding that with the truth instead of the estimate (the knowledge gradient
of Frazier, Powell and Dayanik, SIAM J. Control Optim. '08), times the accelerator time that jobs of the kind still have
to run, over what the measurement costs.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from gavel.estimator.colocation import Completed
from gavel.estimator.pairs import PairEstimates
from gavel.ports import ThroughputEstimator, ThroughputMatrix
from gavel.types import AcceleratorType, AllocationProblem, BoolArray, FloatArray, Job, JobId

Pair = tuple[JobId, AcceleratorType]
Cell = tuple[int, int]  # (row, column) of the problem

LEAST_GAIN = 0.001  # of a job's rate, relative; below it a measurement is not worth its cost


class ProfilingByValue:
    """Implements ProfilingChoice within a budget: at most `budget_fraction` of the accelerator time of any `window_s`.

    Each choice that was carried out costs one round of its gang; `total_s` is the sum, in accelerator-seconds. What was
    spent is kept in memory only: after a restart the window is empty.
    """

    def __init__(self, budget_fraction: float, window_s: float) -> None:
        self._fraction, self._window_s = budget_fraction, window_s
        self._chosen: dict[Pair, tuple[float, float]] = {}  # by the last call; the next one sees which were run
        self._spent: deque[tuple[float, float]] = deque()  # (when, accelerator-seconds), oldest first
        self.total_s = 0.0

    def __call__(
        self, jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
    ) -> tuple[Pair, ...]:
        """Return what to measure in the round that is being planned, best first."""
        self._settle(jobs, problem.now_s)
        budget_s = self._fraction * self._window_s * float(problem.capacity_workers.sum())
        left_s = budget_s - sum(seconds for _, seconds in self._spent)
        believed = estimator.matrix([job.spec for job in jobs], problem.accelerator_types)
        chosen = worth_profiling(jobs, problem, believed, budget_s=left_s)
        size_of = {job.id: job.spec.scale_factor for job in jobs}
        self._chosen = {pair: (problem.now_s, size_of[pair[0]] * problem.round_duration_s) for pair in chosen}
        return chosen

    def _settle(self, jobs: Sequence[Job], now_s: float) -> None:
        """Count the last choices as spent, but those whose job is still there and did not run on the type."""
        rounds = {job.id: job.rounds_received for job in jobs}
        for (job_id, name), spent in self._chosen.items():
            if job_id not in rounds or rounds[job_id].get(name, 0):
                self._spent.append(spent)
                self.total_s += spent[1]
        while self._spent and self._spent[0][0] <= now_s - self._window_s:
            self._spent.popleft()


def worth_profiling(
    jobs: Sequence[Job], problem: AllocationProblem, believed: ThroughputMatrix, *, budget_s: float
) -> tuple[Pair, ...]:
    """Return what to profile this round, best first, within a budget in accelerator-seconds.

    `jobs` are the rows of the problem and of `believed`. One job of a kind and size measures a type for all others.
    A profiling lease costs its gang one round.
    """
    candidates = _candidates(jobs, problem, believed)
    if not candidates:
        return ()
    gain, cost_s = _gains(problem, believed), problem.round_duration_s * problem.scale_factor
    value = (gain * _work_s(jobs, problem)[:, None] / cost_s[:, None]).tolist()
    worth = [(-value[row][column], jobs[row].id, row, column) for row, column in candidates]
    chosen: list[Pair] = []
    measuring: set[tuple[str, int, AcceleratorType]] = set()
    left_s, is_little = budget_s, (gain < LEAST_GAIN).tolist()
    for _, job_id, row, column in sorted(each for each in worth if not is_little[each[2]][each[3]]):
        spec, name = jobs[row].spec, problem.accelerator_types[column]
        key = spec.kind, spec.scale_factor, name
        if key in measuring or cost_s[row] > left_s:
            continue
        measuring.add(key)
        chosen.append((job_id, name))
        left_s -= float(cost_s[row])
    return tuple(chosen)


def pairs_worth_trying(
    estimates: Completed | PairEstimates, untried: BoolArray, *, most: int
) -> tuple[tuple[int, int, int], ...]:
    """Return (type, kind, kind) of the `untried` (m, n, n) pairs whose measurement may change the packing.

    There are at most `most`, the best first. Packing pays if the two normalised rates add up to more than 1;
    pairs whose sum may be on either side of 1 are worth trying.
    """
    total, deviation = _together(estimates)
    gain = np.triu(np.where(untried, expected_gain(total, np.ones_like(total), deviation), 0.0))
    order = np.argsort(-gain, axis=None, kind="stable")[:most]
    best = zip(*np.unravel_index(order[gain.ravel()[order] >= LEAST_GAIN], gain.shape), strict=True)
    return tuple((int(t), int(a), int(b)) for t, a, b in best)


def pays(estimates: Completed | PairEstimates, deviations: float) -> BoolArray:
    """Return the pairs (m, n, n) that do more together than one job alone, even so many deviations below the mean.

    A pair whose normalised rates add up to 1 or less gains nothing for any policy: one job after the other, each for
    its part of the time, has as much.
    """
    total, deviation = _together(estimates)
    return np.asarray(total - deviations * deviation > 1.0)


def _together(estimates: Completed | PairEstimates) -> tuple[FloatArray, FloatArray]:
    """What both members of each pair keep of their rates, added up, and its deviation, (m, n, n)."""
    total: FloatArray = estimates.rate + np.transpose(estimates.rate, (0, 2, 1))
    return total, np.hypot(estimates.deviation, np.transpose(estimates.deviation, (0, 2, 1)))


def expected_gain(advantage: FloatArray, threshold: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the mean gain, in log(rate), from learning on which side of the threshold an advantage lies; any shape."""
    from scipy.special import ndtr

    deviation = np.maximum(deviation, 1e-9)
    z = np.abs(advantage - threshold) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = ndtr(-z)
    gain: FloatArray = deviation * (density - z * below)
    return gain


def _candidates(jobs: Sequence[Job], problem: AllocationProblem, believed: ThroughputMatrix) -> list[Cell]:
    """Return (row, column) where the job can run, its rate is worth measuring, and the job never ran.

    A job is sent to a type once to measure it; if that round measured nothing, the inferred rate is used.
    """
    fits = problem.throughput_steps_per_s[: len(jobs), 0] > 0
    return [
        (row, column)
        for row, column in np.argwhere(fits & believed.is_worth_measuring).tolist()
        if not jobs[row].rounds_received.get(problem.accelerator_types[column], 0)
    ]


def _gains(problem: AllocationProblem, believed: ThroughputMatrix) -> FloatArray:
    """Return the gain of measuring each job on each type, (n, m), in log(rate).

    The error of an advantage is the type's error less its part in the mean over the types.
    """
    log_rate = np.log(believed.steps_per_s)
    advantage = log_rate - log_rate.mean(axis=1, keepdims=True)
    share = problem.capacity_workers / max(1, problem.capacity_workers.sum())
    ordered = np.sort(advantage, axis=0)
    last_in = np.clip(np.ceil((1 - share) * len(log_rate)).astype(int), 0, len(log_rate) - 1)
    columns = np.arange(len(share))
    threshold = (ordered[last_in, columns] + ordered[np.maximum(last_in - 1, 0), columns]) / 2
    return expected_gain(advantage, threshold, believed.relative_error * (1 - 1 / len(share)))


def _work_s(jobs: Sequence[Job], problem: AllocationProblem) -> FloatArray:
    """Return the accelerator-seconds that all jobs of each job's kind and size still need on their best type, (n,)."""
    best = np.maximum(problem.throughput_steps_per_s[: len(jobs), 0].max(axis=1), 1e-12)
    own = problem.steps_remaining / best * problem.scale_factor
    total: dict[tuple[str, int], float] = {}
    keys = [(job.spec.kind, job.spec.scale_factor) for job in jobs]
    for key, seconds in zip(keys, own.tolist(), strict=True):
        total[key] = total.get(key, 0.0) + seconds
    return np.array([total[key] for key in keys])
