"""Measures of problems and allocations in plain numpy: rates, service, violated limits.

c combinations, n jobs, m accelerator types. The words are those of docs/policies.md.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np

from gavel import finish_time
from gavel.types import AllocationProblem, BoolArray, FloatArray, IntArray


@lru_cache(maxsize=1)
def members_in(problem: AllocationProblem) -> IntArray:
    """Return how many jobs each combination has, (c,)."""
    return np.fromiter(map(len, problem.combinations), dtype=np.int64, count=len(problem.combinations))


@lru_cache(maxsize=1)  # every measure of a problem begins here
def member_of(problem: AllocationProblem) -> IntArray:
    """Return the jobs of each combination, (c, 2); -1 where there is no second member."""
    padded, sizes = np.full((len(problem.combinations), 2), -1), members_in(problem)
    flat = np.fromiter(chain.from_iterable(problem.combinations), dtype=np.int64, count=int(sizes.sum()))
    begins = np.cumsum(sizes) - sizes
    padded[:, 0] = flat[begins]
    paired = np.flatnonzero(sizes > 1)
    padded[paired, 1] = flat[begins[paired] + 1]
    padded.flags.writeable = False
    return padded


@lru_cache(maxsize=1)
def is_unpacked(problem: AllocationProblem) -> bool:
    """Return whether every combination r is job r alone, as a gang of its scale factor."""
    if len(problem.combination_workers):
        return False
    jobs, members = len(problem.job_ids), chain.from_iterable(problem.combinations)
    if len(problem.combinations) != jobs or not all(problem.combinations):
        return False
    firsts = np.fromiter(members, dtype=np.int64, count=jobs)
    return next(members, None) is None and np.array_equal(firsts, np.arange(jobs))


def is_alone(problem: AllocationProblem) -> bool:
    """Return whether no two jobs may share workers."""
    return problem.pair_rates is None and (is_unpacked(problem) or is_over_sizes(problem))


def is_over_sizes(problem: AllocationProblem) -> bool:
    """Return whether a policy shares out sizes, too: a job then has a combination for each of its sizes."""
    return bool(len(problem.combination_workers))


def alone(problem: AllocationProblem) -> AllocationProblem:
    """Return the problem in which each job runs alone or not at all; itself if it is one."""
    if is_alone(problem):
        return problem
    rates = np.zeros((len(problem.job_ids), 2, len(problem.accelerator_types)))
    rates[:, 0] = rate_alone(problem)
    singles = tuple((row,) for row in range(len(problem.job_ids)))
    return replace(problem, pair_rates=None, combinations=singles, throughput_steps_per_s=rates)


def gang_size(problem: AllocationProblem) -> IntArray:
    """Return the workers that each combination holds while it runs, (c,); packed jobs share theirs."""
    if is_over_sizes(problem):
        return problem.combination_workers
    return problem.scale_factor if is_unpacked(problem) else problem.scale_factor[member_of(problem)[:, 0]]


def can_run(problem: AllocationProblem) -> BoolArray:
    """Return where each combination may run, (c, m): all its members progress there and the type holds its gang."""
    fits: BoolArray = (problem.capacity_workers[:, None] >= gang_size(problem)).T
    able: BoolArray = (problem.throughput_steps_per_s[:, 0] > 0) & fits
    if is_unpacked(problem):
        return able
    return able & ((problem.throughput_steps_per_s[:, 1] > 0) | (member_of(problem)[:, 1] < 0)[:, None])


def rate_alone(problem: AllocationProblem) -> FloatArray:
    """Return the steps per second of each job alone on each type, (n, m); 0 where it cannot run.

    In its fastest size, where a policy shares out sizes.
    """
    usable: FloatArray = problem.throughput_steps_per_s[:, 0] * can_run(problem)
    if is_unpacked(problem):
        return usable
    rates = np.zeros((len(problem.job_ids), len(problem.accelerator_types)))
    members = member_of(problem)
    alone = members[:, 1] < 0
    np.maximum.at(rates, members[alone, 0], usable[alone])
    return rates


def rate_per_worker(problem: AllocationProblem) -> FloatArray:
    """Return the most steps per second that a worker of each type makes for a job alone, (n, m), over its sizes."""
    if not is_over_sizes(problem):
        return rate_alone(problem) / problem.scale_factor[:, None]
    rates = np.zeros((len(problem.job_ids), len(problem.accelerator_types)))
    each = problem.throughput_steps_per_s[:, 0] * can_run(problem) / problem.combination_workers[:, None]
    np.maximum.at(rates, member_of(problem)[:, 0], each)
    return rates


def equal_share_rate(problem: AllocationProblem) -> FloatArray:
    """Return the steps per second on one accelerator of the average type, (n,): sum_j T_ij N_j / sum_j N_j.

    An elastic job has the one at which its isolated rate is the service of its part of all workers:
    e_i = s_i T_iso_i / (N / n).
    """
    workers: FloatArray = problem.capacity_workers.astype(float)
    equal: FloatArray = rate_alone(problem) @ workers / max(1.0, float(workers.sum()))
    if problem.configurations is not None:
        jobs, share = problem.configurations.jobs, even_share(problem)
        part = np.maximum(share * workers.sum(), 1e-300)[jobs]
        equal[jobs] = problem.scale_factor[jobs] * isolated_rate(problem, share)[jobs] / part
    return equal


def effective_throughput(problem: AllocationProblem, time_fraction: FloatArray) -> FloatArray:
    """Return the steps per second of each job under `time_fraction` (c, m), over all combinations and types, (n,)."""
    gained = (problem.throughput_steps_per_s * (time_fraction * can_run(problem))[:, None, :]).sum(axis=2)
    members = member_of(problem)
    total = np.zeros(len(problem.job_ids))
    for place in range(members.shape[1]):
        there = members[:, place] >= 0
        np.add.at(total, members[there, place], gained[there, place])
    return total


def service_per_step(problem: AllocationProblem) -> FloatArray:
    """Return the service that one step per second is worth, (n,): s_i / e_i, 0 for a job that can run nowhere."""
    equal = equal_share_rate(problem)
    return _ratio(problem.scale_factor.astype(float), equal, 0.0)


def service(problem: AllocationProblem, time_fraction: FloatArray) -> FloatArray:
    """Return how many equal-share accelerators each job has in effect, (n,): q_i = s_i a_i / e_i."""
    return service_per_step(problem) * effective_throughput(problem, time_fraction)


def relative_throughput(problem: AllocationProblem, time_fraction: FloatArray) -> FloatArray:
    """Return effective throughput over the rate on the best type, (n,), in [0, 1] without packing."""
    return per_best_rate(problem) * effective_throughput(problem, time_fraction)


def per_best_rate(problem: AllocationProblem) -> FloatArray:
    """Return 1 / max_j T_ij of each job alone, (n,), in seconds a step; 0 where it can run nowhere."""
    best = rate_alone(problem).max(axis=1, initial=0.0)
    return _ratio(np.ones_like(best), best, 0.0)


def cpu_and_memory_share(problem: AllocationProblem) -> FloatArray:
    """Return the parts of the cluster's CPU cores and memory that each job's gang holds while it runs, (2, n).

    0 where the job states no demand or the cluster does not say how much it has.
    """
    shares = np.zeros((2, len(problem.job_ids)))
    for row, (demand, there) in enumerate(
        (
            (problem.cpu_cores, problem.cluster_cpu_cores),
            (problem.memory_bytes, problem.cluster_memory_bytes),
        )
    ):
        if len(demand):
            shares[row] = demand / there
    return shares


def remaining_time_s(problem: AllocationProblem) -> FloatArray:
    """Return the seconds to each job's end alone on its best type, (n,), at least 1 step; +inf if it cannot run."""
    best = rate_alone(problem).max(axis=1, initial=0.0)
    return _ratio(np.maximum(1.0, problem.steps_remaining), best, np.inf)


def expected_length(length: FloatArray, error: FloatArray) -> FloatArray:
    """Return how long n jobs are to be taken, (n,), if the logarithms of `length` are off by `error` (n,) or (0,).

    The mean of a normal prior, that of the jobs themselves, and of what is stated, each weighted by its precision: the
    less sure a length is, the nearer it is taken to be to the geometric mean of all. One that is infinite stays so.
    """
    is_known = np.isfinite(length) & (length > 0)
    if not error.any() or not is_known.any():
        return length
    stated = np.log(length[is_known])
    spread = max(float(stated.var()), 1e-12)
    sure = spread / (spread + error[is_known] ** 2)
    expected = length.copy()
    expected[is_known] = np.exp(stated.mean() + sure * (stated - stated.mean()))
    return expected


def attained_service_s(problem: AllocationProblem) -> FloatArray:
    """Return the worker seconds that each job has held, (n,), to the millisecond.

    They are added up of many pieces, whose roundings may not decide which of two jobs that held the same goes first.
    """
    return np.round(problem.attained_service_s, 3)


def slice_of_each_type(problem: AllocationProblem, share: FloatArray) -> FloatArray:
    """Return the time fractions (c, m) of jobs that each have the fraction `share` (n,) of every type, as for T_iso.

    Packed pairs get none. Within capacity if the shares of runnable jobs sum to <= 1.
    """
    alone = member_of(problem)[:, 1] < 0
    usable = can_run(problem) & alone[:, None]
    own = share[member_of(problem)[:, 0]]
    return finish_time.slice_of_each_type(usable, problem.capacity_workers, gang_size(problem), own)


def value_per_time(problem: AllocationProblem, per_step: FloatArray) -> FloatArray:
    """Return the worth of a unit of time of each combination on each type, (c, m), 0 where it cannot run.

    `per_step` (n, m), or (n, 1), is what a step of each job is worth on each type; packed jobs add up.
    """
    members = member_of(problem)
    each = np.where((members >= 0)[:, :, None], per_step[members], 0.0) if len(per_step) else 0.0
    worth: FloatArray = (each * problem.throughput_steps_per_s).sum(axis=1) * can_run(problem)
    return worth


def isolated_finish_s(problem: AllocationProblem, share: FloatArray) -> FloatArray:
    """Return the seconds from submission to end of jobs that each have the fraction `share` (n,) of every type, (n,).

    The isolated time of its done steps plus that of the rest at T_iso (gavel/finish_time.py); a job with nothing left
    counts as one step, so that this is positive. +inf where it can run nowhere.
    """
    rate = isolated_rate(problem, share)
    return problem.isolated_time_s + _ratio(np.maximum(1.0, problem.steps_remaining), rate, np.inf)


def isolated_rate(problem: AllocationProblem, share: FloatArray) -> FloatArray:
    """Return T_iso of jobs that each have the fraction `share` (n,) of every type, in steps/s, (n,)."""
    rates, workers = rate_alone(problem), problem.capacity_workers
    return finish_time.isolated_rate(rates, workers, problem.scale_factor, share, problem.configurations)


def time_of_jobs(problem: AllocationProblem, time_fraction: FloatArray) -> FloatArray:
    """Return the fraction of the time in which each job runs, over all its combinations and types, (n,)."""
    together = time_fraction @ np.ones(time_fraction.shape[1])
    if is_unpacked(problem):
        return together
    members = member_of(problem)
    busy = np.zeros(len(problem.job_ids))
    for place in range(members.shape[1]):
        there = members[:, place] >= 0
        np.add.at(busy, members[there, place], together[there])
    return busy


def violation(problem: AllocationProblem, time_fraction: FloatArray) -> float:
    """Return how far `time_fraction` (c, m) breaks a limit, as a part of the time or of a type's workers; 0 if none."""
    if not time_fraction.size:
        return 0.0
    least = float(time_fraction.min())
    if not np.isfinite(least + float(time_fraction.max())):
        return float("inf")
    busy = time_of_jobs(problem, time_fraction)
    workers = problem.capacity_workers.astype(float)
    held = gang_size(problem) @ time_fraction
    return max(
        0.0,
        -least,
        float(busy.max()) - 1.0,
        float(((held - workers) / np.maximum(1.0, workers)).max()),
        float(np.abs(time_fraction[~can_run(problem)]).max(initial=0.0)),
    )


def _ratio(above: FloatArray, below: FloatArray, otherwise: float) -> FloatArray:
    """above / below where below is positive."""
    quotient: FloatArray = np.divide(above, below, out=np.full_like(below, otherwise), where=below > 0)
    return quotient


def runnable(problem: AllocationProblem) -> BoolArray:
    """Return which jobs can run alone on some type, (n,)."""
    return np.asarray(rate_alone(problem).any(axis=1))


def even_share(problem: AllocationProblem) -> FloatArray:
    """Return 1 / n for each of the n jobs that can run somewhere, 0 for the others, (n,)."""
    able = runnable(problem)
    return able.astype(float) / max(1, int(able.sum()))


def needed_speed(problem: AllocationProblem) -> FloatArray:
    """Return the part of its best rate that each job needs to end by its deadline, (n,).

    0 without a deadline or if it can run nowhere; +inf if the deadline has passed.
    """
    left_s = problem.deadline_at_s - problem.now_s
    due = np.isfinite(left_s) & runnable(problem)
    alone_s = remaining_time_s(problem)
    needed = np.divide(alone_s, left_s, out=np.full_like(alone_s, np.inf), where=due & (left_s > 0))
    return np.where(due, needed, 0.0)
