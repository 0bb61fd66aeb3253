"""Variants of a policy as functions on its problem."""

from dataclasses import dataclass, replace

import numpy as np

from gavel.policies._reads import Reads
from gavel.policies.measures import can_run, gang_size
from gavel.policies.programs.pairs import named_pairs
from gavel.policies.programs.validate import check_problem
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray, PairRates


def agnostic(problem: AllocationProblem) -> AllocationProblem:
    """`problem` as a scheduler sees it that does not tell types apart (the baseline of Gavel, section 7).

    A job's rate on every type it can run on becomes their mean by number of workers: its total over all workers, and so
    its equal share, stays what it was. Zeros stay zero.
    """
    rates = problem.throughput_steps_per_s
    usable = (rates > 0) & can_run(problem)[:, None, :]
    workers = problem.capacity_workers.astype(float)
    return replace(
        problem,
        throughput_steps_per_s=_mean(rates, usable, workers),
        pair_rates=_agnostic_pairs(problem, workers),
    )


def _agnostic_pairs(problem: AllocationProblem, workers: FloatArray) -> PairRates | None:
    """The pair rates with the mean over the types that a pair can use in place of each."""
    pairs = problem.pair_rates
    if pairs is None or not len(pairs.steps_per_s):
        return pairs
    kinds, first = np.unique(pairs.kind_of_job, return_index=True)
    scale = np.zeros(len(pairs.steps_per_s))
    scale[kinds[kinds >= 0]] = problem.scale_factor[first[kinds >= 0]]
    rates = pairs.steps_per_s
    usable = (rates > 0) & (rates.transpose(1, 0, 2) > 0) & (scale[:, None, None] <= workers)
    return replace(pairs, steps_per_s=_mean(rates, usable, workers))


def _mean(rates: FloatArray, usable: BoolArray, workers: FloatArray) -> FloatArray:
    """The mean over the `usable` types, by number of workers, in place of each of these rates (..., m); else 0."""
    counted = usable * workers
    total = counted.sum(axis=-1, keepdims=True)
    mean = np.divide((rates * counted).sum(axis=-1, keepdims=True), total, out=np.zeros(total.shape), where=total > 0)
    return np.where(usable, mean, 0.0)


@dataclass(frozen=True)
class Agnostic:
    """A policy that decides on the agnostic view of each problem."""

    name: str
    policy: Policy

    @property
    def reads(self) -> Reads | None:
        """What the policy's answer depends on; the types alike are made of fields that every answer depends on."""
        stated: Reads | None = getattr(self.policy, "reads", None)
        return stated

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """The policy's allocation for types that look alike; raises SolveFailed or InvalidProblem."""
        check_problem(problem, takes_pair_rates=True)
        blind = agnostic(problem)
        answer = self.policy.allocate(blind)
        evenly = evened(named_pairs(blind, answer.combinations), answer.time_fraction)
        return replace(answer, time_fraction=evenly, policy=self.name)


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
