"""How many workers each job holds: one rule for leases, allocations and the time that jobs have held workers.

A job holds every worker that its gang is on; a worker that two jobs share counts half for each. So the workers of all
jobs add up to the workers that are held.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from gavel.types.allocation import Allocation, AllocationProblem, FloatArray
from gavel.types.cluster import AcceleratorType, WorkerId
from gavel.types.jobs import Job
from gavel.types.rounds import Lease, RoundPlan

Seconds = TypeVar("Seconds", float, FloatArray)
Span = tuple[int, float, float]  # index of a lease, and from when until when it holds a worker


def worker_s(held_s: Seconds, shared_s: Seconds, scale_factor: Any) -> Seconds:
    """Return the worker seconds of gangs that held their workers for `held_s`, in `shared_s` of it with another job."""
    seconds: Seconds = (held_s - shared_s / 2) * scale_factor
    return seconds


def worker_s_of(job: Job) -> dict[AcceleratorType, float]:
    """Return the worker seconds that the job has held of each accelerator type."""
    shared_s, size = job.shared_s, job.spec.scale_factor
    return {name: worker_s(held_s, shared_s.get(name, 0.0), size) for name, held_s in job.received_s.items()}


def workers_held(leases: Sequence[Lease]) -> list[float]:
    """Return how many workers each lease holds, (leases,), where all of them are in force at one instant."""
    holders = Counter(worker for lease in leases for worker in lease.worker_ids)
    return [sum(1 / holders[worker] for worker in lease.worker_ids) for lease in leases]


def mean_workers_held(plan: RoundPlan) -> list[float]:
    """Return how many workers each lease of the plan holds on average over its round, (leases,).

    A lease that begins or ends in mid-round counts by the time that it holds. A worker that is shared for a part of the
    round counts half for each lease in that part.
    """
    held_s = [0.0] * len(plan.leases)
    shared: dict[WorkerId, list[Span]] = defaultdict(list)
    for index, lease in enumerate(plan.leases):
        from_s, until_s = _span(lease, plan)
        if len(lease.combination) == 1:
            held_s[index] = len(lease.worker_ids) * (until_s - from_s)
            continue
        for worker in lease.worker_ids:
            shared[worker].append((index, from_s, until_s))
    for spans in shared.values():
        for index, part_s in _parts(spans):
            held_s[index] += part_s
    return [each_s / plan.duration_s for each_s in held_s]


def workers_promised(allocation: Allocation, problem: AllocationProblem) -> FloatArray:
    """Return how many workers of each type each job gets on average by its target fractions, (n, m)."""
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    held = np.zeros((len(row_of), allocation.time_fraction.shape[1]))
    entries = [(row_of[each], line) for line, members in enumerate(allocation.combinations) for each in members]
    if not entries:
        return held
    rows, lines = np.array(entries, dtype=np.int64).T
    members_of = np.array([len(members) for members in allocation.combinations])
    workers = problem.scale_factor[rows] / members_of[lines]
    np.add.at(held, rows, allocation.time_fraction[lines] * workers[:, None])
    return held


def parts_held(plan: RoundPlan, present: Collection[WorkerId]) -> list[float]:
    """Return the part of all workers that each lease of the plan holds on average over its round, (leases,).

    All workers are those that are `present` now and those of the plan that have gone since: the parts sum to 1 at most.
    """
    workers = len({*present, *(worker for lease in plan.leases for worker in lease.worker_ids)})
    return [held / max(1, workers) for held in mean_workers_held(plan)]


def mean_workers_received(jobs: Sequence[Job], types: Sequence[AcceleratorType], now_s: float) -> FloatArray:
    """Return how many workers of each type each job has held on average, since the first of them was submitted, (n, m).

    One period for all jobs: a job that ran before another was submitted does not count as if it ran beside it, so that
    the jobs of a type never have received more than its workers.
    """
    span_s = max(now_s - min((job.submitted_at_s for job in jobs), default=now_s), 1e-9)
    received = [[seconds.get(name, 0.0) / span_s for name in types] for seconds in map(worker_s_of, jobs)]
    return np.array(received).reshape(len(jobs), len(types))


def total_by(keys: Iterable[str], workers: Iterable[float]) -> dict[str, float]:
    """Return the sum of the workers under each key: a job, a user, a tier or an accelerator type."""
    total: dict[str, float] = {}
    for key, held in zip(keys, workers, strict=True):
        total[key] = total.get(key, 0.0) + held
    return total


def _span(lease: Lease, plan: RoundPlan) -> tuple[float, float]:
    """The instants within the round between which the lease holds its workers; equal if it does not."""
    starts_at_s = plan.starts_at_s if lease.starts_at_s is None else max(plan.starts_at_s, lease.starts_at_s)
    return starts_at_s, max(starts_at_s, min(lease.expires_at_s, plan.ends_at_s))


def _parts(spans: Sequence[Span]) -> Iterator[tuple[int, float]]:
    """The seconds of each span on one worker; spans that overlap share that time equally."""
    instants = sorted({instant_s for _, from_s, until_s in spans for instant_s in (from_s, until_s)})
    for first_s, last_s in pairwise(instants):
        there = [index for index, from_s, until_s in spans if from_s <= first_s and last_s <= until_s]
        for index in there:
            yield index, (last_s - first_s) / len(there)
