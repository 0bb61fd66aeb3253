"""Max-min, water filling, finish-time fairness and makespan as Gavel publishes them, to measure against.

As published (OSDI '20, github.com/stanford-futuredata/gavel): one program per call built from scratch, finish-time
fairness with one cvxpy expression a job, makespan by bisection, water filling with a mixed-integer program that finds
the jobs which can still rise. The original's ECOS is replaced by Clarabel, its GLPK_MI by HiGHS (scipy.optimize.milp):
both are faster. Arrays: T (n, m) steps/s of the gang, s (n,) scale factors, w (n,) weights, C (m,) workers.
"""

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from gavel.types import AllocationProblem, FloatArray

SOLVER = cp.CLARABEL


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A problem as the published policies take it; `proportional` (n,) is one slot's rate with the cluster's mix."""

    rates: FloatArray
    scale: FloatArray
    weight: FloatArray
    workers: FloatArray
    steps: FloatArray
    age_s: FloatArray
    isolated_s: FloatArray

    @staticmethod
    def of(problem: AllocationProblem) -> "Given":
        return Given(
            problem.throughput_steps_per_s[:, 0],
            problem.scale_factor.astype(float),
            problem.weight,
            problem.capacity_workers.astype(float),
            problem.steps_remaining,
            problem.age_s,
            problem.isolated_time_s,
        )

    @property
    def proportional(self) -> FloatArray:
        rate: FloatArray = self.rates @ self.workers / self.workers.sum()
        return rate

    @property
    def isolated(self) -> FloatArray:
        """Rate on 1/n of every type."""
        share = self.workers / (len(self.scale) * self.scale[:, None])
        share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
        rate: FloatArray = (self.rates * share).sum(axis=1)
        return rate


def _variable(given: Given) -> tuple[Any, list[Any]]:
    x = cp.Variable(given.rates.shape)
    scale = np.repeat(given.scale[:, None], given.rates.shape[1], axis=1)
    valid = [x >= 0, cp.sum(cp.multiply(scale, x), axis=0) <= given.workers, cp.sum(x, axis=1) <= 1]
    return x, valid


def max_min(given: Given) -> float:
    """The worst normalised rate of the published least attained service policy."""
    x, valid = _variable(given)
    normal = given.scale / (given.weight * given.proportional)
    worst = cp.min(cp.sum(cp.multiply(given.rates * normal[:, None], x), axis=1))
    return float(cp.Problem(cp.Maximize(worst), valid).solve(solver=SOLVER))


def finish_time_fairness(given: Given) -> float:
    """The worst rho: one expression for each job."""
    x, valid = _variable(given)
    rho = []
    for job in range(len(given.scale)):
        alone_s = given.isolated_s[job] + given.steps[job] / given.isolated[job] if job == 0 else _alone_s(given, job)
        allocated = cp.sum(cp.multiply(given.rates[job], x[job]))
        rho.append((given.age_s[job] + given.steps[job] * cp.inv_pos(allocated)) / alone_s)
    objective = cp.Minimize(cp.maximum(*rho)) if len(rho) > 1 else cp.Minimize(rho[0])
    return float(cp.Problem(objective, valid).solve(solver=SOLVER))


def _alone_s(given: Given, job: int) -> float:
    share = given.workers / (len(given.scale) * given.scale[job])
    rate = float(given.rates[job] @ (share / max(1.0, share.sum())))
    return float(given.isolated_s[job] + given.steps[job] / rate)


def makespan(given: Given) -> float:
    """The last end by bisection to a ratio of 1.05, one feasibility program a step."""
    low, high = 100.0, 1e6
    while not _ends_by(given, high):
        low, high = high, 10 * high
    while high > 1.05 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if _ends_by(given, middle) else (middle, high)
    return high


def _ends_by(given: Given, end_s: float) -> bool:
    x, valid = _variable(given)
    done = cp.sum(cp.multiply(given.rates, x), axis=1) >= given.steps / end_s
    stated = cp.Problem(cp.Maximize(0), [*valid, done])
    stated.solve(solver=SOLVER)
    return bool(stated.status == cp.OPTIMAL)


def water_filling(given: Given) -> FloatArray:
    """Sorted rates over weight: levels of a linear program, each followed by the mixed-integer program."""
    n = len(given.scale)
    normal = given.scale / given.proportional
    held, rising = np.zeros(n), np.ones(n, dtype=bool)
    while rising.any():
        x, valid = _variable(given)
        rate = cp.sum(cp.multiply(given.rates * normal[:, None], x), axis=1)
        level = cp.Variable()
        reach = held + cp.multiply(np.where(rising, given.weight, 0.0), level)
        cp.Problem(cp.Maximize(level), [*valid, rate >= reach]).solve(solver=SOLVER)
        held = held + np.where(rising, given.weight, 0.0) * max(0.0, float(level.value))
        can = _can_rise(given, normal, held * (1 - 1e-7), rising)
        if (can == rising).all():
            break
        rising = can
    return np.sort(held / given.weight)


def _can_rise(given: Given, normal: FloatArray, held: FloatArray, rising: FloatArray) -> FloatArray:
    """The most jobs that can gain 0.01 % at once: sum of binary z, with rate >= held + 1e-4 held z."""
    n, m = given.rates.shape
    rows = np.repeat(np.arange(n), m)
    entries = np.arange(n * m)
    gained = sparse.csr_array(((given.rates * normal[:, None]).ravel(), (rows, entries)), shape=(n, n * m))
    times = sparse.csr_array((np.ones(n * m), (rows, entries)), shape=(n, n * m))
    workers = sparse.csr_array((given.scale[rows], (np.tile(np.arange(m), n), entries)), shape=(m, n * m))
    more = sparse.diags_array(-1e-4 * np.maximum(held, 1e-9))
    zero = sparse.csr_array((n, n))
    limits = sparse.vstack([sparse.hstack([times, zero]), sparse.hstack([workers, sparse.csr_array((m, n))])])
    answer = milp(
        np.concatenate([np.zeros(n * m), -rising.astype(float)]),
        integrality=np.concatenate([np.zeros(n * m), np.ones(n)]),
        bounds=Bounds(0, np.concatenate([np.ones(n * m), rising.astype(float)])),
        constraints=[
            LinearConstraint(limits.tocsc(), -np.inf, np.concatenate([np.ones(n), given.workers])),
            LinearConstraint(sparse.hstack([gained, more]).tocsc(), held, np.inf),
        ],
    )
    if answer.x is None:
        return np.zeros(n, dtype=bool)
    found: FloatArray = answer.x[n * m :] > 0.5
    return found & rising
