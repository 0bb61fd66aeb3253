"""Figures of a simulated run, from its jobs' lines: times, fairness, losses; and bounds that no schedule can beat."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gavel.errors import SolveFailed
from gavel.simulator.cluster import Throughput
from gavel.simulator.report import JobResult
from gavel.types import SECONDS_PER_HOUR, Cluster, FloatArray, plain_type
from workloads.traces.job import TraceJob

RHO_LIMIT = 1.05  # above it, a job would have been better off alone on its 1/n share


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of the measured jobs. Times in hours.

    `jct_floor_h`: the mean time alone on the fastest type, a lower bound.
    """

    jobs: int
    mean_jct_h: float
    median_jct_h: float
    p90_jct_h: float
    p99_jct_h: float
    max_jct_h: float
    jct_floor_h: float
    makespan_h: float
    mean_rho: float
    max_rho: float
    share_rho_above_limit: float
    preemptions: int
    lost_h: float
    cost_usd: float
    deadlines: int
    deadlines_missed: int


class Gathered:
    """The numbers of many jobs' lines, a few bytes per job; each line is read once."""

    def __init__(self) -> None:
        self.jct_s, self.rho, self.fastest_s = array("d"), array("d"), array("d")
        self.jobs = self.preemptions = self.deadlines = self.deadlines_missed = 0
        self.lost_s = self.cost_usd = 0.0
        self.began_at_s, self.ended_at_s = math.inf, -math.inf

    @classmethod
    def of(cls, rows: Iterable[JobResult]) -> "Gathered":
        """Return the numbers of all these lines."""
        gathered = cls()
        for row in rows:
            gathered.add(row)
        return gathered

    def add(self, row: JobResult) -> None:
        """Add the numbers of one line."""
        for column, value in ((self.jct_s, row.jct_s), (self.rho, row.rho), (self.fastest_s, row.fastest_s)):
            if value is not None:
                column.append(value)
        self.jobs += 1
        self.preemptions += row.preemptions
        self.lost_s += row.lost_s * row.scale_factor
        self.cost_usd += row.cost_usd
        self.began_at_s = min(self.began_at_s, row.submitted_at_s)
        self.ended_at_s = max(self.ended_at_s, -math.inf if row.finished_at_s is None else row.finished_at_s)
        if row.deadline_at_s is not None:
            self.deadlines += 1
            self.deadlines_missed += row.finished_at_s is None or row.finished_at_s > row.deadline_at_s


def figures(rows: Iterable[JobResult]) -> Figures:
    """Return the figures of jobs that have all completed; NaN where a figure has no values."""
    return figures_of(Gathered.of(rows))


def figures_of(seen: Gathered) -> Figures:
    """Return the figures of the gathered numbers, as `figures` does."""
    jct, rho, floors = (
        np.array(seen.jct_s) / SECONDS_PER_HOUR,
        np.array(seen.rho),
        np.array(seen.fastest_s) / SECONDS_PER_HOUR,
    )
    return Figures(
        jobs=seen.jobs,
        mean_jct_h=_of(jct.mean, jct),
        median_jct_h=_of(lambda: np.median(jct), jct),
        p90_jct_h=_of(lambda: np.quantile(jct, 0.9), jct),
        p99_jct_h=_of(lambda: np.quantile(jct, 0.99), jct),
        max_jct_h=_of(jct.max, jct),
        jct_floor_h=_of(floors.mean, floors),
        makespan_h=(seen.ended_at_s - seen.began_at_s) / SECONDS_PER_HOUR if seen.ended_at_s > -math.inf else math.nan,
        mean_rho=_of(rho.mean, rho),
        max_rho=_of(rho.max, rho),
        share_rho_above_limit=_of((rho > RHO_LIMIT).mean, rho),
        preemptions=seen.preemptions,
        lost_h=seen.lost_s / SECONDS_PER_HOUR,
        cost_usd=seen.cost_usd,
        deadlines=seen.deadlines,
        deadlines_missed=seen.deadlines_missed,
    )


def by_tier(rows: Iterable[JobResult]) -> dict[str, Figures]:
    """Return the figures of each tier's jobs, sorted by tier."""
    seen: dict[str, Gathered] = {}
    for row in rows:
        seen.setdefault(row.tier, Gathered()).add(row)
    return {tier: figures_of(seen[tier]) for tier in sorted(seen)}


def slowdown_by_size(rows: Iterable[JobResult], quantile: float | None = None) -> dict[int, float]:
    """Return the mean slowdown of the jobs of each scale factor, or this quantile of it, sorted by the scale factor.

    Slowdown: a job's completion time over its time alone on its fastest type; at least 1 without packing.
    """
    seen: dict[int, list[float]] = {}
    for row in rows:
        if row.jct_s is not None and row.fastest_s:
            seen.setdefault(row.scale_factor, []).append(row.jct_s / row.fastest_s)
    middle = np.mean if quantile is None else partial(np.quantile, q=quantile)
    return {size: float(middle(seen[size])) for size in sorted(seen)}


def tier_shares(busy_s: FloatArray, tiers: Sequence[str], types: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each tier's part of the busy time of each type, in [0, 1]; `busy_s`: worker seconds (tiers, types)."""
    total = np.maximum(busy_s.sum(axis=0), 1e-12)
    return {
        tier: {name: float(busy_s[row, column] / total[column]) for column, name in enumerate(types)}
        for row, tier in enumerate(tiers)
    }


def makespan_bound_h(jobs: Sequence[TraceJob], cluster: Cluster, throughput: Throughput) -> float:
    """Return the hours below which no schedule can finish `jobs`, if all were there at the start.

    The linear program of Gavel (OSDI '20, section 4.2): maximise 1/M with theta_i >= R_i / M over the valid X. Raise
    SolveFailed if it cannot be solved.
    """
    from scipy import optimize, sparse

    types = cluster.accelerator_types
    capacity = cluster.capacity_workers()
    n, m = len(jobs), len(types)
    sizes = np.array([job.spec.scale_factor for job in jobs], dtype=float)
    hours = np.zeros((n, m))  # 1 / hours of the whole job on each type
    for row, job in enumerate(jobs):
        for column, name in enumerate(types):
            if capacity[name] >= job.spec.scale_factor:
                rate = throughput.get((job.spec.kind, job.spec.scale_factor, plain_type(name)), 0.0)
                hours[row, column] = rate * SECONDS_PER_HOUR / job.total_steps
    variables, rows = np.arange(n * m), np.repeat(np.arange(n), m)
    ones = sparse.csr_array((np.ones(n * m), (rows, variables)), shape=(n, n * m + 1))
    held = sparse.csr_array((np.repeat(sizes, m), (variables % m, variables)), shape=(m, n * m + 1))
    gain = sparse.csr_array(
        (
            np.concatenate([-hours.ravel(), np.ones(n)]),
            (np.concatenate([rows, np.arange(n)]), np.concatenate([variables, np.full(n, n * m)])),
        ),
        shape=(n, n * m + 1),
    )
    limits = np.concatenate([np.ones(n), [capacity[name] for name in types], np.zeros(n)])
    objective = np.zeros(n * m + 1)
    objective[-1] = -1.0
    answer = optimize.linprog(objective, A_ub=sparse.vstack([ones, held, gain]), b_ub=limits, method="highs")
    if not answer.success or answer.x[-1] <= 0:
        raise SolveFailed(f"the makespan bound: {answer.message}")
    return float(1.0 / answer.x[-1])


def plain(value: Mapping[str, float]) -> dict[str, float]:
    """Return numbers with six significant digits, so that the same run gives the same bytes on every machine."""
    return {name: _rounded(number) for name, number in value.items()}


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.6g}")


def _of(figure: object, values: np.ndarray) -> float:
    return float(figure()) if values.size and callable(figure) else float("nan")
