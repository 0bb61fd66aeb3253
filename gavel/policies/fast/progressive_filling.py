"""Shares made as equal as they can be on one accelerator type: all rise together until something is used up.

With one type a job's share is in proportion to its time, so water filling needs no program: all jobs rise together,
and who holds a resource that is used up, or runs all the time, stays where it is while the others go on. The answer is
proved by itself: it is the lexicographic one if each job has a bottleneck, a resource that is used up and of which no
other job with a larger share holds a part (Bertsekas, Gallager, Data Networks, 1992, section 6.5.2).
"""

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray

SOLVER = "progressive filling"
PRECISION = 1e-12  # relative: nearer to its end something is used up


def filled(problem: AllocationProblem, policy: str, claims: FloatArray, shared: FloatArray) -> Allocation | None:
    """Return the allocation that raises service over `claims` (n,) evenly; None unless one type alone has workers.

    `shared` (k, n) is the part of each of k resources that a job holds while it runs. None also for packed pairs, and
    where it is not proved within 1e-6. `problem` is checked already.
    """
    types = np.flatnonzero(problem.capacity_workers > 0)
    if len(types) != 1 or not measures.is_unpacked(problem):
        return None
    level_of_time, held = _levels(problem, claims), _held(problem, shared)
    time = _risen(level_of_time, held)
    fractions = np.zeros((len(time), len(problem.accelerator_types)))
    fractions[:, types[0]] = time
    broken_by = max(measures.violation(problem, fractions), float((held @ time).max()) - 1.0)
    certificate = Certificate(primal_violation=broken_by, dual_gap=_without_bottleneck(level_of_time, held, time))
    if not max(broken_by, certificate.dual_gap or 0.0) <= MOST_VIOLATION:
        return None
    return named(problem, fractions, certificate, policy, SOLVER)


def _levels(problem: AllocationProblem, claims: FloatArray) -> FloatArray:
    """The service over claim that all of its time brings each job, (n,); 0 for one that cannot run."""
    service = measures.service_per_step(problem) * measures.rate_alone(problem).max(axis=1, initial=0.0)
    level: FloatArray = service / claims
    return level


def _held(problem: AllocationProblem, shared: FloatArray) -> FloatArray:
    """The parts of the workers and of the other resources that each job holds while it runs, (1 + k, n)."""
    return np.vstack([problem.scale_factor / problem.capacity_workers.sum(), shared])


def _risen(level_of_time: FloatArray, held: FloatArray) -> FloatArray:
    """The time of each job, (n,), when nobody can rise any more."""
    able = level_of_time > 0
    per_level = np.divide(1.0, level_of_time, out=np.zeros_like(level_of_time), where=able)
    time, rising, level = np.zeros_like(level_of_time), able, 0.0
    while rising.any():
        left = 1.0 - held[:, ~rising] @ time[~rising]
        used_up_at = _ratio(left, held[:, rising] @ per_level[rising])
        level = max(level, min(float(used_up_at.min()), float(level_of_time[rising].min())))
        time[rising] = np.minimum(1.0, level * per_level[rising])
        used_up = used_up_at <= level * (1 + PRECISION)
        stays = (held[used_up] > 0).any(axis=0) | (level_of_time <= level * (1 + PRECISION))
        rising = rising & ~stays
    return time


def _without_bottleneck(level_of_time: FloatArray, held: FloatArray, time: FloatArray) -> float:
    """How far the job that is farthest from having a bottleneck is from one: 0 if each has one."""
    able = level_of_time > 0
    level, takes = level_of_time * time, (held > 0) & able
    highest = np.where(takes, level, 0.0).max(axis=1, keepdims=True, initial=0.0)
    unused = 1.0 - held @ time
    lower = 1.0 - np.divide(level, highest, out=np.ones_like(held), where=highest > 0)
    apart = np.where(takes, np.maximum(unused[:, None], lower), np.inf)
    return float(np.minimum(apart.min(axis=0), 1.0 - time)[able].max(initial=0.0))


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """above / below, no less than 0; infinite where below is 0."""
    quotient: FloatArray = np.divide(np.maximum(0.0, above), below, out=np.full_like(below, np.inf), where=below > 0)
    return quotient
