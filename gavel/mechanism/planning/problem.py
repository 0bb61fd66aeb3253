"""Makes the allocation problem, the one argument of every policy, from jobs, cluster and estimates."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.index import is_schedulable, order_key
from gavel.mechanism.planning.lengths import length_error, steps_left
from gavel.ports import ThroughputEstimate, ThroughputEstimator, ThroughputMatrix
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    Combination,
    Configurations,
    FloatArray,
    IntArray,
    Job,
    JobId,
    JobSpec,
    JobState,
    PairRates,
    Tier,
)

Estimate = Callable[[JobSpec, Sequence[AcceleratorType]], tuple[ThroughputEstimate, ...]]
Staying = Iterable[tuple[str, AcceleratorType, float]]
"""Tier, type and number of the workers that each gang holds which no plan moves."""
Matrix = Callable[[Sequence[JobSpec], Sequence[AcceleratorType]], ThroughputMatrix]


def schedulable(jobs: Iterable[Job], now_s: float) -> list[Job]:
    """Return the jobs that a round may serve, the highest priority first, then the earliest submission."""
    return sorted((job for job in jobs if is_schedulable(job, now_s)), key=order_key)


def as_known(job: Job, estimator: ThroughputEstimator) -> Job:
    """Return the job with the kind whose rates apply to it: a kind of its own if it differs from the rest."""
    kind = estimator.kind_of(job)
    return job if kind == job.spec.kind else replace(job, spec=replace(job.spec, kind=kind))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobColumns:
    """What a problem says of its n jobs, in the order in which a round serves them, one array a field; (n,) each.

    Fields named as in `AllocationProblem` are the same. None has a default, so that nobody who makes a problem can
    leave one out.
    """

    job_ids: tuple[JobId, ...]
    users: tuple[str, ...]
    tier_of_job: IntArray  # index into the tiers, sorted by name
    scale_factor: IntArray
    steps_per_s: FloatArray  # (n, m) of the whole gang alone, 0 where it cannot run
    stated_weight: FloatArray
    priority: IntArray  # each step doubles the weight
    steps_left: FloatArray  # that nobody has reported as done
    length_error: FloatArray
    submitted_at_s: FloatArray
    attained_service_s: FloatArray
    isolated_time_s: FloatArray
    deadline_at_s: FloatArray  # +inf: none
    cpu_cores: FloatArray  # of the whole gang
    memory_bytes: FloatArray  # of the whole gang


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterColumns:
    """What a problem says of the cluster: its m accelerator types, and what all nodes have together (+inf: unknown)."""

    accelerator_types: tuple[AcceleratorType, ...]
    capacity_workers: IntArray  # (m,)
    price_usd_per_hour: FloatArray  # (m,) mean of the type's workers
    cpu_cores: float
    memory_bytes: float

    @classmethod
    def of(cls, cluster: Cluster) -> "ClusterColumns":
        """Return the columns of `cluster`."""
        types, workers = cluster.accelerator_types, cluster.capacity_workers()
        return cls(
            accelerator_types=types,
            capacity_workers=np.array([workers[name] for name in types], dtype=np.int64),
            price_usd_per_hour=np.array([*cluster.mean_price_usd_per_hour().values()], dtype=np.float64),
            cpu_cores=_total(node.cpu_cores for node in cluster.nodes),
            memory_bytes=_total(node.memory_bytes for node in cluster.nodes),
        )


def problem_of(
    jobs: JobColumns,
    cluster: ClusterColumns,
    *,
    tiers: tuple[Tier, ...],
    now_s: float,
    round_duration_s: float,
    pair_rates: PairRates | None,
    warm_start: Mapping[str, Any],
) -> AllocationProblem:
    """Return the allocation problem of the jobs, one combination per job; the only function that makes one."""
    count, types = len(jobs.job_ids), cluster.accelerator_types
    rates = np.zeros((count, 2, len(types)))
    rates[:, 0] = jobs.steps_per_s
    return AllocationProblem(
        now_s=now_s,
        round_duration_s=round_duration_s,
        job_ids=jobs.job_ids,
        combinations=_each_alone(count),
        accelerator_types=types,
        throughput_steps_per_s=rates,
        capacity_workers=cluster.capacity_workers,
        price_usd_per_hour=cluster.price_usd_per_hour,
        scale_factor=jobs.scale_factor,
        weight=np.ldexp(jobs.stated_weight, jobs.priority),
        steps_remaining=np.maximum(1.0, jobs.steps_left),
        age_s=np.maximum(0.0, now_s - jobs.submitted_at_s),
        attained_service_s=jobs.attained_service_s,
        isolated_time_s=jobs.isolated_time_s,
        deadline_at_s=jobs.deadline_at_s,
        tiers=tiers,
        tier_of_job=jobs.tier_of_job,
        users=jobs.users,
        cpu_cores=jobs.cpu_cores,
        memory_bytes=jobs.memory_bytes,
        length_error=jobs.length_error,
        cluster_cpu_cores=cluster.cpu_cores,
        cluster_memory_bytes=cluster.memory_bytes,
        pair_rates=pair_rates,
        warm_start=warm_start,
    )


def with_staying(problem: AllocationProblem, staying: Staying) -> AllocationProblem:
    """Return the problem with what gangs that stay hold beside it. A type of which they leave nothing is left out."""
    tiers, types = [tier.name for tier in problem.tiers], problem.accelerator_types
    workers = np.zeros((len(tiers), len(types)))
    for tier, accelerator_type, count in staying:
        if accelerator_type in types:
            workers[tiers.index(tier), types.index(accelerator_type)] += count
    return replace(problem, staying_workers=workers) if workers.any() else problem


@lru_cache(maxsize=64)
def _each_alone(count: int) -> tuple[Combination, ...]:
    """A combination for each of `count` jobs: itself."""
    return tuple([(row,) for row in range(count)])


def problem_from(
    jobs: Sequence[Job],
    *,
    feasibility: Feasibility,
    tiers: Mapping[str, Tier],
    matrix: Matrix,
    now_s: float,
    round_duration_s: float,
    pair_rates: PairRates | None,
    warm_start: Mapping[str, Any],
) -> AllocationProblem:
    """Return the allocation problem of `jobs` (n, in the order in which rounds serve them), one combination per job."""
    columns = ClusterColumns.of(feasibility.cluster)
    names = {name: index for index, name in enumerate(sorted(tiers))}
    specs = [job.spec for job in jobs]
    believed = matrix(specs, columns.accelerator_types)
    steps_per_s = np.where(feasibility.mask(specs), believed.steps_per_s, 0.0)
    total_steps = _column(math.nan if job.total_steps is None else job.total_steps for job in jobs)
    return problem_of(
        JobColumns(
            job_ids=tuple([job.id for job in jobs]),
            users=tuple([job.spec.user for job in jobs]),
            tier_of_job=np.array([names[job.spec.tier] for job in jobs], dtype=np.int64),
            scale_factor=np.array([job.spec.scale_factor for job in jobs], dtype=np.int64),
            steps_per_s=steps_per_s,
            stated_weight=_column(job.spec.weight for job in jobs),
            priority=np.array([job.spec.priority for job in jobs], dtype=np.int64),
            steps_left=steps_left(
                total_steps,
                _column(job.steps_reported for job in jobs),
                kinds=[job.spec.kind for job in jobs],
                steps_per_s=steps_per_s,
            ),
            length_error=length_error(total_steps, _of_fastest(believed.relative_error, steps_per_s)),
            submitted_at_s=_column(job.submitted_at_s for job in jobs),
            attained_service_s=_column(attained_service_s(job, now_s) for job in jobs),
            isolated_time_s=_column(job.isolated_time_s for job in jobs),
            deadline_at_s=_column(deadline_or_inf(job.spec) for job in jobs),
            cpu_cores=_column(job.spec.cpu_cores * job.spec.scale_factor for job in jobs),
            memory_bytes=_column(job.spec.memory_bytes * job.spec.scale_factor for job in jobs),
        ),
        columns,
        tiers=tuple(tiers[name] for name in names),
        now_s=now_s,
        round_duration_s=round_duration_s,
        pair_rates=pair_rates,
        warm_start=warm_start,
    )


def _of_fastest(values: FloatArray, steps_per_s: FloatArray) -> FloatArray:
    """The value (n,) of each job's fastest type, of `values` (n, m); 0 where there is no type."""
    if not values.shape[1]:
        return np.zeros(len(values))
    return np.take_along_axis(values, steps_per_s.argmax(axis=1)[:, None], axis=1)[:, 0]


def deadline_or_inf(spec: JobSpec) -> float:
    """Return the job's deadline, seconds since the epoch; +inf if it has none."""
    return math.inf if spec.deadline_at_s is None else spec.deadline_at_s


def attained_service_s(job: Job, now_s: float) -> float:
    """Return the accelerator-seconds that the job has held so far, those since its gang's last report included.

    Reports come with whole steps, so that without this part a gang with long steps would seem to have held nothing.
    """
    held_s = sum(job.received_s.values())
    if job.state is JobState.LEASED:
        held_s += max(0.0, now_s - job.accounted_until_s)
    return held_s * job.spec.scale_factor


def rates_of(specs: Sequence[JobSpec], feasibility: Feasibility, estimate: Estimate) -> FloatArray:
    """Return the steps per second of n gangs on each type, (n, m); 0 where a gang cannot run."""
    types = feasibility.types
    believed = np.array([[each.steps_per_s for each in estimate(spec, types)] for spec in specs], dtype=np.float64)
    return np.where(feasibility.mask(specs), believed.reshape(len(specs), len(types)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The last problem that a policy solved, its answer, and when that was."""

    problem: AllocationProblem
    allocation: Allocation

    def serves(self, problem: AllocationProblem, *, solve_on: Literal["change", "event"], interval_s: float) -> bool:
        """Return True if the answer may be used again: its inputs did not change, or the interval has not passed.

        With `solve_on` "event" the progress of jobs does not count as a change; only jobs, workers and settings do.
        """
        if problem.accelerator_types != self.problem.accelerator_types:
            return False
        if problem.now_s - self.problem.now_s < interval_s:
            return True
        return all(_same(getattr(problem, name), getattr(self.problem, name)) for name in self._compared(solve_on))

    def serves_after_progress(self, now_s: float, *, solve_on: Literal["change", "event"], interval_s: float) -> bool:
        """Return True if the answer serves every problem in which only time has passed and the same jobs progressed."""
        return now_s - self.problem.now_s < interval_s or PROGRESS_FIELDS.isdisjoint(self._compared(solve_on))

    def _compared(self, solve_on: Literal["change", "event"]) -> list[str]:
        """The fields in which another problem may not differ."""
        ignored = PROGRESS_FIELDS if solve_on == "event" else frozenset()
        read = FIELDS if self.allocation.reads is None else self.allocation.reads
        return [name for name in read if name not in ignored]


FIELDS = tuple(each.name for each in fields(AllocationProblem) if each.name != "warm_start")
PROGRESS_FIELDS = frozenset(
    {"steps_remaining", "length_error", "attained_service_s", "isolated_time_s", "age_s", "now_s"}
)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, PairRates | Configurations) and type(one) is type(other):
        return all(_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def reused(solved: Solved, problem: AllocationProblem) -> Allocation:
    """Return the last answer for `problem`: unchanged if the jobs are the same, else without those that are gone."""
    if _same(solved.problem.job_ids, problem.job_ids) and _same(solved.problem.combinations, problem.combinations):
        return solved.allocation
    return replace(restricted(solved.allocation, problem), is_fallback=False)


def restricted(last: Allocation, problem: AllocationProblem) -> Allocation:
    """Return the last valid allocation for the jobs that are still there, on the types where they can still run."""
    row_of: Mapping[tuple[JobId, ...], int] = {members: row for row, members in enumerate(last.combinations)}
    combinations = tuple(tuple(problem.job_ids[i] for i in members) for members in problem.combinations)
    if problem.pair_rates is not None:  # pairs that the policy named
        there = set(problem.job_ids)
        combinations += tuple(each for each in last.combinations if len(each) == 2 and there.issuperset(each))
    rows = [row_of.get(members, len(row_of)) for members in combinations]
    columns = [last.accelerator_types.index(name) for name in problem.accelerator_types]
    fractions = np.vstack([last.time_fraction, np.zeros(len(last.accelerator_types))])[np.ix_(rows, columns)]
    fractions[: len(problem.combinations)][problem.throughput_steps_per_s[:, 0] <= 0] = 0.0
    return replace(
        last,
        combinations=combinations,
        accelerator_types=problem.accelerator_types,
        time_fraction=fractions,
        is_fallback=True,
        solve_time_s=0.0,
    )


def with_new_jobs(kept: Allocation, last: Allocation, shared: Allocation, users: Mapping[JobId, str]) -> Allocation:
    """Return `kept`, which is `last` for the present jobs, with room for the jobs that `last` does not know.

    Each of these gets what it has in `shared`, the equal share, but the new jobs of one of U users together at most a
    U-th of the cluster: nobody gains by many jobs. The others give way by the part that the new ones get. Both fit into
    the cluster, so what is between them does.
    """
    present = {job for members in last.combinations for job in members}
    able = {members[0]: row for row, members in enumerate(shared.combinations) if shared.time_fraction[row].any()}
    new = able.keys() - present
    if not new:
        return kept
    jobs_of = Counter(users[job] for job in able)
    of_share = {job: min(1.0, len(able) / (len(jobs_of) * jobs_of[users[job]])) for job in new}
    fractions = kept.time_fraction * (1 - math.fsum(of_share.values()) / len(able))
    for row, members in enumerate(kept.combinations):
        if len(members) == 1 and members[0] in new:
            fractions[row] = of_share[members[0]] * shared.time_fraction[able[members[0]]]
    return replace(kept, time_fraction=fractions)


def _column(values: Iterable[float]) -> FloatArray:
    return np.fromiter(values, dtype=np.float64)


def _total(of_nodes: Iterable[int]) -> float:
    """What all nodes have together; +inf if there is none, or one that does not say how much it has."""
    return math.fsum(each or math.inf for each in of_nodes) or math.inf
