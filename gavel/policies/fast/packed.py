"""Max-min fairness over packed pairs that are known by kind: classes of identical jobs, then pairs of named jobs.

1. jobs of one kind, scale factor, weight and rates are one class;
2. water filling over the classes and their pairs (`columns`), each class as one job;
3. time that two classes have together is given to pairs of their jobs, so that all jobs of a class have as much of it,
   over as few pairs as that takes: n_c + n_d - 1 at most, half the jobs within a class.
"""

from dataclasses import dataclass

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast.columns import Columns, Generated, columns
from gavel.policies.fast.job_classes import Classes, classes
from gavel.policies.programs import names
from gavel.policies.programs.filling import Filling
from gavel.policies.programs.program import MOST_VIOLATION
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray, PairRates

SOLVER = "columns"


def evenly_packed(
    problem: AllocationProblem, pairs: PairRates, policy: str, *, whole: bool, time_limit_s: float
) -> Allocation:
    """Raise service over weight evenly; with `whole` False as far as the first job can go, then the total times weight.

    The allocation names the jobs alone, in order, and after them the pairs that have time. `problem` is checked
    already. Raises SolveFailed, also where the certificate is over 1e-6.
    """
    alone = measures.rate_alone(problem)
    rows = np.flatnonzero(alone.any(axis=1))
    single, packed = np.zeros(alone.shape), _Packed.none(alone.shape[1])
    gap = 0.0
    if len(rows):
        per_step = measures.service_per_step(problem)[rows]
        own = (problem.scale_factor[rows], problem.weight[rows], pairs.kind_of_job[rows])
        job_classes = classes([alone[rows], *own, per_step])
        first = rows[job_classes.first]
        stated = _columns(problem, pairs, alone[first], first, job_classes.count)
        question = Generated(stated, problem.capacity_workers.astype(float), time_limit_s)
        gap = _filled(question, problem.weight[first], job_classes.count, whole=whole)
        single[rows] = job_classes.expand(_alone(stated, question.time, alone.shape[1]))
        packed = _together(stated, question.time, job_classes, rows, alone.shape[1])
    return _named(problem, policy, single, packed, gap)


def _columns(
    problem: AllocationProblem, pairs: PairRates, alone: FloatArray, first: IntArray, count: IntArray
) -> Columns:
    """The columns of the classes of which `first` (k,) are jobs, with rates `alone` (k, m)."""
    workers, scale, kind = problem.capacity_workers.astype(float), problem.scale_factor[first], pairs.kind_of_job[first]
    per_step = measures.service_per_step(problem)[first]
    colocated = pairs.steps_per_s[kind] if len(pairs.steps_per_s) else np.zeros((len(first), 0, len(workers)))
    can = alone[:, None, :] > 0
    parts = np.divide(colocated, alone[:, None, :], out=np.zeros(colocated.shape), where=can)
    return columns(alone * per_step[:, None], parts, kind, scale, count)


def _filled(question: Generated, weight: FloatArray, count: IntArray, *, whole: bool) -> float:
    """Fill; the distance to the bound, in service, or relative where that of the total is larger."""
    if not whole:
        reach = question.ask(np.zeros(len(weight)), weight).reach
        apart = question.most(weight * count, weight * reach)
        return max(apart, question.gap * float(weight.max()))
    filling = Filling(question)
    filling.fill(Share([One(job) for job in range(question.jobs)], weight.tolist()))
    return max(filling.dual_gap, question.gap)


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """Pairs of jobs, `first` and `second` (p,), and their time on each type, `fractions` (p, m)."""

    first: IntArray
    second: IntArray
    fractions: FloatArray

    @staticmethod
    def none(types: int) -> "_Packed":
        nobody = np.zeros(0, dtype=np.int64)
        return _Packed(nobody, nobody, np.zeros((0, types)))


def _alone(stated: Columns, time: FloatArray, types: int) -> FloatArray:
    """Time that each job of a class runs alone on each type, (k, m)."""
    fractions = np.zeros((len(stated.count), types))
    single = stated.second < 0
    fractions[stated.first[single], stated.kind[single]] = time[single]
    return np.clip(fractions / stated.count[:, None], 0.0, 1.0)


def _together(stated: Columns, time: FloatArray, job_classes: Classes, rows: IntArray, types: int) -> _Packed:
    """Step 3: the time of each pair of classes as time of pairs of jobs."""
    used = np.flatnonzero((stated.second >= 0) & (time > 0))
    if not len(used):
        return _Packed.none(types)
    begins = np.cumsum(job_classes.count) - job_classes.count
    jobs = rows[np.argsort(job_classes.of_job, kind="stable")]
    both, place = np.unique(np.column_stack([stated.first[used], stated.second[used]]), axis=0, return_inverse=True)
    of_types = np.zeros((len(both), types))
    of_types[place.ravel(), stated.kind[used]] = time[used]
    parts = []
    for (c, d), fractions in zip(both.tolist(), of_types, strict=True):
        one, other, part = (
            _within(int(job_classes.count[c])) if c == d else _between(job_classes.count[c], job_classes.count[d])
        )
        parts.append((jobs[begins[c] + one], jobs[begins[d] + other], part[:, None] * fractions))
    return _Packed(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _between(first: int, second: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs of one of `first` jobs and one of `second`, and the part of the time of each, 1 in all.

    Both classes are laid along the same line; where a job of one and a job of the other overlap they are a pair.
    """
    ends = np.concatenate([np.arange(1, first + 1) * second, np.arange(1, second + 1) * first])
    ends.sort(kind="stable")  # merges the two
    ends = ends[np.diff(ends, prepend=0) > 0]
    starts = np.concatenate([[0], ends[:-1]])
    return starts // second, starts // first, (ends - starts) / (float(first) * float(second))


def _within(count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs of `count` jobs of one class, and the part of the time of each: two by two, an odd one out with two."""
    ring = 3 if count % 2 else 0
    one = np.concatenate([np.arange(ring), np.arange(ring, count, 2)])
    other = np.concatenate([(np.arange(ring) + 1) % 3, np.arange(ring + 1, count, 2)])
    return one, other, np.where(np.arange(len(one)) < ring, 1.0, 2.0) / count


def _named(problem: AllocationProblem, policy: str, single: FloatArray, packed: _Packed, gap: float) -> Allocation:
    """The allocation with its certificate; SolveFailed if that is over 1e-6."""
    broken_by = _violation(problem, single, packed)
    if not max(broken_by, gap) <= MOST_VIOLATION:
        raise SolveFailed(f"packed pairs by class: off by {max(broken_by, gap):.1e} (most: {MOST_VIOLATION:.0e})")
    first, second = np.minimum(packed.first, packed.second), np.maximum(packed.first, packed.second)
    return Allocation(
        combinations=names.of_jobs_and_pairs(problem.job_ids, first, second),
        accelerator_types=problem.accelerator_types,
        time_fraction=np.concatenate([single, packed.fractions]),
        certificate=Certificate(primal_violation=broken_by, dual_gap=gap),
        policy=policy,
        solver=SOLVER,
    )


def _violation(problem: AllocationProblem, single: FloatArray, packed: _Packed) -> float:
    """How far a limit is broken, over jobs and workers, as `measures.violation` counts it."""
    every = np.ones(single.shape[1])
    busy, both = single @ every, packed.fractions @ every
    for members in (packed.first, packed.second):
        busy = busy + np.bincount(members, both, len(busy))
    held = problem.scale_factor @ single + problem.scale_factor[packed.first] @ packed.fractions
    over = (held - problem.capacity_workers) / np.maximum(1, problem.capacity_workers)
    return max(0.0, float(busy.max(initial=0.0)) - 1.0, float(over.max(initial=0.0)))
