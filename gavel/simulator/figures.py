"""What a simulated run amounted to, from its jobs' lines: times, fairness, losses; and bounds no schedule can beat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.errors import SolveFailed
from gavel.simulator.cluster import Throughput
from gavel.simulator.report import JobRow
from gavel.types import Cluster, FloatArray
from workloads.traces.job import TraceJob

RHO_LIMIT = 1.05  # above it, a job would have been better off alone on its 1/n share


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the measured jobs. Times in hours; `jct_floor_h`: the mean time alone on the fastest type, a lower bound."""

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


def figures(rows: Sequence[JobRow]) -> Figures:
    """Figures of jobs that have all completed; NaN where there is none of something."""
    jct = np.array([row.jct_s for row in rows if row.jct_s is not None]) / 3600.0
    rho = np.array([row.rho for row in rows if row.rho is not None])
    floors = np.array([row.fastest_s for row in rows if row.fastest_s is not None]) / 3600.0
    due = [row for row in rows if row.deadline_at_s is not None]
    return Figures(
        jobs=len(rows),
        mean_jct_h=_of(jct.mean, jct),
        median_jct_h=_of(lambda: np.median(jct), jct),
        p90_jct_h=_of(lambda: np.quantile(jct, 0.9), jct),
        p99_jct_h=_of(lambda: np.quantile(jct, 0.99), jct),
        max_jct_h=_of(jct.max, jct),
        jct_floor_h=_of(floors.mean, floors),
        makespan_h=_span_s(rows) / 3600.0,
        mean_rho=_of(rho.mean, rho),
        max_rho=_of(rho.max, rho),
        share_rho_above_limit=_of((rho > RHO_LIMIT).mean, rho),
        preemptions=sum(row.preemptions for row in rows),
        lost_h=sum(row.lost_s * row.scale_factor for row in rows) / 3600.0,
        cost_usd=sum(row.cost_usd for row in rows),
        deadlines=len(due),
        deadlines_missed=sum(row.finished_at_s is None or row.finished_at_s > (row.deadline_at_s or 0) for row in due),
    )


def by_tier(rows: Sequence[JobRow]) -> dict[str, Figures]:
    """The same for each tier, sorted by name."""
    return {tier: figures([row for row in rows if row.tier == tier]) for tier in sorted({row.tier for row in rows})}


def tier_shares(busy_s: FloatArray, tiers: Sequence[str], types: Sequence[str]) -> dict[str, dict[str, float]]:
    """Part of the busy worker seconds (tiers, types) of each type that went to each tier; in [0, 1]."""
    total = np.maximum(busy_s.sum(axis=0), 1e-12)
    return {
        tier: {name: float(busy_s[row, column] / total[column]) for column, name in enumerate(types)}
        for row, tier in enumerate(tiers)
    }


def makespan_bound_h(jobs: Sequence[TraceJob], cluster: Cluster, throughput: Throughput) -> float:
    """Hours below which no schedule can finish `jobs`, were they all there at the start.

    The linear program of Gavel (OSDI '20, section 4.2): maximise 1/M with theta_i >= R_i / M over the valid X. Raises
    SolveFailed.
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
                rate = throughput.get((job.spec.kind, job.spec.scale_factor, name), 0.0)
                hours[row, column] = rate * 3600.0 / job.spec.total_steps
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
    """Numbers as they are written: six significant digits, so that the same run gives the same bytes anywhere."""
    return {name: _rounded(number) for name, number in value.items()}


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.6g}")


def _span_s(rows: Sequence[JobRow]) -> float:
    ends = [row.finished_at_s for row in rows if row.finished_at_s is not None]
    return max(ends) - min(row.submitted_at_s for row in rows) if ends else float("nan")


def _of(figure: object, values: np.ndarray) -> float:
    return float(figure()) if values.size and callable(figure) else float("nan")
