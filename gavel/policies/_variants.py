"""Variants of a policy as functions on its problem."""

from dataclasses import dataclass, replace

import numpy as np

from gavel.policies._validate import check_problem
from gavel.policies.measures import can_run
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem


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


@dataclass(frozen=True)
class Agnostic:
    """A policy that decides on the agnostic view of each problem."""

    name: str
    policy: Policy

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """The policy's allocation for types that look alike; raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        return replace(self.policy.allocate(agnostic(problem)), policy=self.name)
