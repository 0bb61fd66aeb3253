"""Max-min, water filling, finish-time fairness and makespan as Gavel publishes them, to measure against.

As published (OSDI '20, github.com/stanford-futuredata/gavel): dictionaries in and out, one program per call built from
scratch and solved by ECOS, finish-time fairness with one cvxpy expression a job, makespan by bisection, water filling
with a mixed-integer program (GLPK_MI) that finds the jobs which can still rise. That program's big-M form is written
here without a big M, which is kinder to it. Where the original takes an inaccurate answer, so does this.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from gavel.types import AllocationProblem, FloatArray

ByJob = dict[str, float]
ByJobAndType = dict[str, dict[str, float]]
RATIO = 1.05  # of the bisection


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A problem as the published policies take it: everything by job id, and workers by type."""

    rates: ByJobAndType
    scale: dict[str, int]
    weight: ByJob
    workers: dict[str, int]
    steps: ByJob
    age_s: ByJob
    isolated_s: ByJob

    @staticmethod
    def of(problem: AllocationProblem) -> "Given":
        ids, types = problem.job_ids, problem.accelerator_types

        def by_job(values: Any) -> Any:
            return dict(zip(ids, values.tolist(), strict=True))

        rows = problem.throughput_steps_per_s[:, 0].tolist()
        return Given(
            rates={job: dict(zip(types, row, strict=True)) for job, row in zip(ids, rows, strict=True)},
            scale=by_job(problem.scale_factor),
            weight=by_job(problem.weight),
            workers=dict(zip(types, problem.capacity_workers.tolist(), strict=True)),
            steps=by_job(problem.steps_remaining),
            age_s=by_job(problem.age_s),
            isolated_s=by_job(problem.isolated_time_s),
        )


class _Flat:
    """The arrays that every published policy makes of its dictionaries first, and the way back."""

    def __init__(self, given: Given) -> None:
        self.jobs, self.types = sorted(given.rates), sorted(given.workers)
        self.rates = np.array([[given.rates[job][kind] for kind in self.types] for job in self.jobs])
        self.workers = np.array([given.workers[kind] for kind in self.types], dtype=float)
        self.scale = np.zeros(self.rates.shape)
        for column in range(len(self.types)):
            for row, job in enumerate(self.jobs):
                self.scale[row, column] = given.scale[job]
        self.proportional = self.rates @ self.workers / self.workers.sum()

    def of_jobs(self, values: ByJob) -> FloatArray:
        return np.array([values[job] for job in self.jobs])

    def variable(self) -> tuple[Any, list[Any]]:
        x = cp.Variable(self.rates.shape)
        held = cp.sum(cp.multiply(self.scale, x), axis=0)
        return x, [x >= 0, held <= self.workers, cp.sum(x, axis=1) <= 1]

    def by_name(self, x: FloatArray) -> ByJobAndType:
        x = x.clip(min=0.0).clip(max=1.0)
        return {
            job: {kind: x[row][column] for column, kind in enumerate(self.types)} for row, job in enumerate(self.jobs)
        }


def _solved(objective: Any, constraints: list[Any], solver: str) -> tuple[str, float]:
    stated = cp.Problem(objective, constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = stated.solve(solver=solver)
    return str(stated.status), float(value) if value is not None else np.nan


def max_min(given: Given) -> float:
    """The worst normalised rate of the published least attained service policy."""
    flat = _Flat(given)
    x, valid = flat.variable()
    normal = flat.scale / (flat.of_jobs(given.weight) * flat.proportional)[:, None]
    worst = cp.min(cp.sum(cp.multiply(flat.rates * normal, x), axis=1))
    _, value = _solved(cp.Maximize(worst), valid, cp.ECOS)
    flat.by_name(x.value)
    return value


def finish_time_fairness(given: Given) -> float:
    """The worst rho: one expression for each job."""
    flat = _Flat(given)
    x, valid = flat.variable()
    share = flat.workers / (len(flat.jobs) * flat.scale)
    isolated = (flat.rates * share / np.maximum(1.0, share.sum(axis=1, keepdims=True))).sum(axis=1)
    rho = []
    for row, job in enumerate(flat.jobs):
        alone_s = given.isolated_s[job] + given.steps[job] / isolated[row]
        allocated = cp.sum(cp.multiply(flat.rates[row], x[row]))
        rho.append((given.age_s[job] + given.steps[job] * cp.inv_pos(allocated)) / alone_s)
    _, value = _solved(cp.Minimize(cp.maximum(*rho)), valid, cp.ECOS)
    flat.by_name(x.value)
    return value


def makespan(given: Given) -> float:
    """The last end by bisection to a ratio of 1.05, one feasibility program a step."""
    flat = _Flat(given)
    steps = flat.of_jobs(given.steps)
    low, high = 100.0, 1e6
    while not _ends_by(flat, steps, high):
        low, high = high, 10 * high
    while high > RATIO * low:
        middle = (low + high) / 2
        low, high = (low, middle) if _ends_by(flat, steps, middle) else (middle, high)
    return high


def _ends_by(flat: _Flat, steps: FloatArray, end_s: float) -> bool:
    x, valid = flat.variable()
    done = cp.sum(cp.multiply(flat.rates, x), axis=1) >= steps / end_s
    status, _ = _solved(cp.Maximize(0), [*valid, done], cp.ECOS)
    return status == cp.OPTIMAL


def water_filling(given: Given) -> FloatArray:
    """Sorted rates over weight: levels of a linear program, each followed by the mixed-integer program."""
    flat, weight = _Flat(given), _Flat(given).of_jobs(given.weight)
    normal = flat.rates * flat.scale / flat.proportional[:, None]
    held, rising = np.zeros(len(weight)), np.ones(len(weight), dtype=bool)
    while rising.any():
        x, valid = flat.variable()
        level, share = cp.Variable(), np.where(rising, weight, 0.0)
        rate = cp.sum(cp.multiply(normal, x), axis=1)
        _solved(cp.Maximize(level), [*valid, rate >= held + cp.multiply(share, level)], cp.ECOS)
        held = held + share * max(0.0, float(level.value))
        flat.by_name(x.value)
        can = rising & _can_rise(flat, normal, held * (1 - 1e-7), rising)
        if (can == rising).all():
            break
        rising = can
    return np.sort(held / weight)


def _can_rise(flat: _Flat, normal: FloatArray, held: FloatArray, rising: FloatArray) -> FloatArray:
    """The most jobs that can gain 0.01 % at once: sum of binary z, with rate >= held + 1e-4 held z."""
    x, valid = flat.variable()
    z = cp.Variable(len(held), boolean=True)
    rate = cp.sum(cp.multiply(normal, x), axis=1)
    more = rate >= held + cp.multiply(1e-4 * np.maximum(held, 1e-9), z)
    _solved(cp.Maximize(cp.sum(z)), [*valid, more, z <= rising.astype(float)], cp.GLPK_MI)
    return np.zeros(len(held), dtype=bool) if z.value is None else np.asarray(z.value > 0.5)
