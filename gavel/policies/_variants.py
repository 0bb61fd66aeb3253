"""Variants of a policy as functions on its problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies._validate import check_problem
from gavel.policies.measures import BoolArray, can_run, gang_size, rate_alone
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem, FloatArray, JobId


def agnostic(problem: AllocationProblem) -> AllocationProblem:
    """`problem` as a scheduler sees it that does not tell types apart (the baseline of Gavel, section 7).

    A job's rate on every type it can run on becomes their mean by number of workers: its total over all workers, and so
    its equal share, stays what it was. Zeros stay zero.
    """
    rates = problem.throughput_steps_per_s
    usable = (rates > 0) & can_run(problem)[:, None, :]
    workers = usable * problem.capacity_workers
    total = workers.sum(axis=2, keepdims=True)
    mean = np.divide((rates * workers).sum(axis=2, keepdims=True), total, out=np.zeros(total.shape), where=total > 0)
    return replace(problem, throughput_steps_per_s=np.where(usable, mean, 0.0))


def with_pairs(
    problem: AllocationProblem, pair_rates: Mapping[tuple[JobId, JobId], Sequence[Sequence[float]] | FloatArray]
) -> AllocationProblem:
    """`problem` in which jobs may also run packed, two gangs on the same workers (Gavel, section 3.1: space sharing).

    `pair_rates[a, b]` (2, types) are the measured steps per second of a and of b beside each other; a type on which one
    of them makes no progress, packed or alone, is closed to the pair. Both gangs have the same scale factor; other jobs
    may have any. Raises InvalidProblem for a pair that cannot be, naming it.
    """
    index = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    for pair in pair_rates:
        _check_pair(problem, index, pair)
    pairs = tuple((index[first], index[second]) for first, second in pair_rates)
    shape = (len(pairs), 2, len(problem.accelerator_types))
    measured = np.asarray([np.asarray(rates, dtype=float) for rates in pair_rates.values()]).reshape(shape)
    alone = rate_alone(problem)[np.asarray(pairs, dtype=np.int64).reshape(-1, 2)] > 0
    return replace(
        problem,
        combinations=problem.combinations + pairs,
        throughput_steps_per_s=np.concatenate([problem.throughput_steps_per_s, measured * alone]),
    )


def _check_pair(problem: AllocationProblem, index: Mapping[JobId, int], pair: tuple[JobId, JobId]) -> None:
    where = f"pair_rates[{'+'.join(pair)}]"
    for job_id in pair:
        if job_id not in index:
            raise InvalidProblem(where, f"there is no job {job_id}; pair jobs of the problem")
    first, second = (int(problem.scale_factor[index[job_id]]) for job_id in pair)
    if first != second:
        raise InvalidProblem(where, f"packs gangs of {first} and of {second} workers; pack gangs of one scale factor")


@dataclass(frozen=True)
class Agnostic:
    """A policy that decides on the agnostic view of each problem."""

    name: str
    policy: Policy

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """The policy's allocation for types that look alike; raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        blind = agnostic(problem)
        answer = self.policy.allocate(blind)
        return replace(answer, time_fraction=evened(blind, answer.time_fraction), policy=self.name)


def evened(problem: AllocationProblem, time_fraction: FloatArray) -> FloatArray:
    """The same time for every combination, (c, m), spread over the types like the workers that are left for it.

    To one that cannot tell types apart every split of a combination's time is as good; a solver picks any corner, and
    with it luck. Combinations that are barred from some type keep their split and take their workers first.
    """
    open_everywhere: BoolArray = np.all(problem.throughput_steps_per_s[:, 0] > 0, axis=1)
    used = gang_size(problem)[:, None] * time_fraction
    left = np.maximum(problem.capacity_workers - used[~open_everywhere].sum(axis=0), 0.0)
    if left.sum() <= 0:
        return time_fraction
    spread: FloatArray = time_fraction.sum(axis=1, keepdims=True) * (left / left.sum())
    return np.where(open_everywhere[:, None], spread, time_fraction)
