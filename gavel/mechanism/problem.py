"""From jobs, cluster and estimates to the one argument of every policy."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gavel.ports import ThroughputEstimate, ThroughputEstimator, ThroughputMatrix
from gavel.types import AcceleratorType, Allocation, AllocationProblem, Cluster, FloatArray, Job, JobId, JobSpec, Tier

Estimate = Callable[[JobSpec, Sequence[AcceleratorType]], tuple[ThroughputEstimate, ...]]
Matrix = Callable[[Sequence[JobSpec], Sequence[AcceleratorType]], ThroughputMatrix]


def schedulable(jobs: Iterable[Job], now_s: float) -> list[Job]:
    """Jobs that a round may serve, of the highest priority and earliest submission first.

    One whose gangs were lost again and again comes back after a pause.
    """
    live = (job for job in jobs if job.is_wanted and job.retry_at_s <= now_s)
    return sorted(live, key=lambda job: (-job.spec.priority, job.submitted_at_s, job.id))


def as_known(job: Job, estimator: ThroughputEstimator) -> Job:
    """The job under the kind whose rates are its: its own kind if it was seen to differ from the rest."""
    kind = estimator.kind_of(job)
    return job if kind == job.spec.kind else replace(job, spec=replace(job.spec, kind=kind))


def problem_from(
    jobs: Sequence[Job],
    *,
    cluster: Cluster,
    tiers: Mapping[str, Tier],
    matrix: Matrix,
    now_s: float,
    round_duration_s: float,
    warm_start: Mapping[str, Any],
) -> AllocationProblem:
    """The allocation problem of `jobs` (n, in order of arrival), one combination per job."""
    types, workers = cluster.accelerator_types, cluster.capacity_workers()
    capacity = np.array([workers[name] for name in types], dtype=np.int64)
    scale_factor = np.array([job.spec.scale_factor for job in jobs], dtype=np.int64)
    believed = matrix([job.spec for job in jobs], types).steps_per_s
    rates = np.zeros((len(jobs), 2, len(types)))
    rates[:, 0] = np.where(capacity >= scale_factor[:, None], believed, 0.0)
    names = sorted(tiers)
    return AllocationProblem(
        now_s=now_s,
        round_duration_s=round_duration_s,
        job_ids=tuple(job.id for job in jobs),
        combinations=tuple((row,) for row in range(len(jobs))),
        accelerator_types=types,
        throughput_steps_per_s=rates,
        capacity_workers=capacity,
        price_usd_per_hour=_prices(cluster),
        scale_factor=scale_factor,
        weight=_column(jobs, lambda job: job.spec.weight * 2.0**job.spec.priority),
        steps_remaining=_column(jobs, lambda job: max(1, job.spec.total_steps - job.steps_reported)),
        age_s=_column(jobs, lambda job: max(0.0, now_s - job.submitted_at_s)),
        attained_service_s=_column(jobs, lambda job: sum(job.received_s.values()) * job.spec.scale_factor),
        isolated_time_s=_column(jobs, lambda job: job.isolated_time_s),
        deadline_at_s=_column(jobs, lambda job: job.spec.deadline_at_s or np.inf),
        tiers=tuple(tiers[name] for name in names),
        tier_of_job=np.array([names.index(job.spec.tier) for job in jobs], dtype=np.int64),
        users=tuple(job.spec.user for job in jobs),
        cpu_cores=_column(jobs, lambda job: job.spec.cpu_cores * job.spec.scale_factor),
        memory_bytes=_column(jobs, lambda job: job.spec.memory_bytes * job.spec.scale_factor),
        cluster_cpu_cores=_total(node.cpu_cores for node in cluster.nodes),
        cluster_memory_bytes=_total(node.memory_bytes for node in cluster.nodes),
        warm_start=warm_start,
    )


def rates_of(
    spec: JobSpec, types: Sequence[AcceleratorType], capacity: np.ndarray[Any, Any], estimate: Estimate
) -> FloatArray:
    """Steps per second of the gang on each type, (m,); 0 where it cannot fit."""
    believed = np.array([each.steps_per_s for each in estimate(spec, types)])
    return np.where(capacity >= spec.scale_factor, believed, 0.0)


def equal_share_rate(rates: FloatArray, capacity: np.ndarray[Any, Any]) -> float:
    """e_m = sum_j T_mj N_j / sum_j N_j, steps per second (Gavel, OSDI '20, section 4.1)."""
    return float(rates @ capacity / max(1, capacity.sum()))


def isolated_share(jobs_alive: int, scale_factor: int, workers: int) -> float:
    """Part of the equal-share rate that a job has alone on its 1/n of the cluster, in (0, 1] (Themis, section 3)."""
    return min(1.0, workers / max(1, jobs_alive * scale_factor))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The last problem that a policy solved, its answer, and when that was."""

    problem: AllocationProblem
    allocation: Allocation

    def serves(self, problem: AllocationProblem, *, solve_on: Literal["change", "event"], interval_s: float) -> bool:
        """True if the answer may be used again: nothing that counts changed, or the interval has not passed."""
        if problem.accelerator_types != self.problem.accelerator_types:
            return False
        if problem.now_s - self.problem.now_s < interval_s:
            return True
        fields = EVENT_FIELDS if solve_on == "event" else (*EVENT_FIELDS, *PROGRESS_FIELDS)
        return all(_same(getattr(problem, name), getattr(self.problem, name)) for name in fields)


EVENT_FIELDS = (
    "job_ids",
    "combinations",
    "tiers",
    "users",
    "capacity_workers",
    "scale_factor",
    "weight",
    "throughput_steps_per_s",
    "price_usd_per_hour",
    "deadline_at_s",
    "tier_of_job",
)
PROGRESS_FIELDS = ("steps_remaining", "attained_service_s", "isolated_time_s")


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def reused(solved: Solved, problem: AllocationProblem) -> Allocation:
    """The last answer for `problem`: unchanged where the jobs are the same, else without those that are gone."""
    if _same(solved.problem.job_ids, problem.job_ids) and _same(solved.problem.combinations, problem.combinations):
        return solved.allocation
    return replace(restricted(solved.allocation, problem), is_fallback=False)


def restricted(last: Allocation, problem: AllocationProblem) -> Allocation:
    """The last valid allocation, for the jobs that are still there and can still run where it put them."""
    row_of: Mapping[tuple[JobId, ...], int] = {members: row for row, members in enumerate(last.combinations)}
    combinations = tuple(tuple(problem.job_ids[i] for i in members) for members in problem.combinations)
    if problem.pair_rates is not None:  # pairs that the policy named
        there = set(problem.job_ids)
        combinations += tuple(each for each in last.combinations if len(each) == 2 and there.issuperset(each))
    fractions = np.zeros((len(combinations), len(problem.accelerator_types)))
    columns = [last.accelerator_types.index(name) for name in problem.accelerator_types]
    for row, members in enumerate(combinations):
        if members in row_of:
            fractions[row] = last.time_fraction[row_of[members], columns]
    fractions[: len(problem.combinations)][problem.throughput_steps_per_s[:, 0] <= 0] = 0.0
    return replace(
        last,
        combinations=combinations,
        accelerator_types=problem.accelerator_types,
        time_fraction=fractions,
        is_fallback=True,
        solve_time_s=0.0,
    )


def _column(jobs: Sequence[Job], of: Callable[[Job], float]) -> FloatArray:
    return np.array([of(job) for job in jobs], dtype=np.float64)


def _total(of_nodes: Iterable[int]) -> float:
    """What all nodes have together; +inf if there is none, or one that does not say how much it has."""
    return math.fsum(each or math.inf for each in of_nodes) or math.inf


def _prices(cluster: Cluster) -> FloatArray:
    """Mean price per worker hour of each type, (m,)."""
    by_type = [
        [worker.price_usd_per_hour for worker in cluster.workers if worker.accelerator_type == name]
        for name in cluster.accelerator_types
    ]
    return np.array([sum(prices) / len(prices) for prices in by_type], dtype=np.float64)
