"""From an allocation problem to the Nash bargaining solution by `nash`, and back."""

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast.job_classes import classes
from gavel.policies.fast.nash import Agreed, Bargain, agree
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

SOLVER = "interior point"


def proportionally(problem: AllocationProblem, policy: str) -> Allocation | None:
    """Return the allocation that maximises sum_i w_i log a_i over the jobs that can run, identical ones as one class.

    None where the program has to answer: for packed pairs, where nobody can run, and where the certificate is over
    1e-6. `problem` is checked already.
    """
    jobs = np.flatnonzero(measures.runnable(problem))
    if not measures.is_unpacked(problem) or not len(jobs):
        return None
    job_classes = classes([measures.rate_alone(problem)[jobs], problem.scale_factor[jobs], problem.weight[jobs]])
    first = jobs[job_classes.first]
    try:
        agreed = agree(_bargain(problem, first, job_classes.count), (problem.weight[first] * job_classes.count)[None])
    except SolveFailed:
        return None
    fractions = np.zeros((len(problem.job_ids), len(problem.accelerator_types)))
    fractions[jobs] = job_classes.expand(agreed.fractions[0].T)
    certificate = Certificate(primal_violation=measures.violation(problem, fractions), dual_gap=float(agreed.gap[0]))
    if not (certificate.primal_violation <= MOST_VIOLATION and agreed.gap[0] <= MOST_VIOLATION):
        return None
    return named(problem, fractions, certificate, policy, SOLVER)


def without_each(problem: AllocationProblem, jobs: IntArray) -> FloatArray | None:
    """Return what each of `jobs` (k,) that can run has without each of them: (k, k) steps per second.

    Row i: job i is not there, and has 0. None for packed pairs, and where the method does not settle.
    """
    if not measures.is_unpacked(problem):
        return None
    if len(jobs) < 2:
        return np.zeros((len(jobs), len(jobs)))
    bargain = _bargain(problem, jobs, np.ones(len(jobs)))
    try:
        agreed: Agreed = agree(bargain, problem.weight[jobs] * ~np.eye(len(jobs), dtype=bool))
    except SolveFailed:
        return None
    if not agreed.gap.max() <= MOST_VIOLATION:
        return None
    rates: FloatArray = np.einsum("bmk,mk->bk", agreed.fractions, bargain.rates)
    return rates


def _bargain(problem: AllocationProblem, jobs: IntArray, count: FloatArray | IntArray) -> Bargain:
    rates = np.ascontiguousarray(measures.rate_alone(problem)[jobs].T)
    return Bargain(rates, problem.scale_factor[jobs] * count.astype(float), problem.capacity_workers.astype(float))
