"""AlloX: jobs are matched to places in the queues of workers so that their mean completion time is least."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies._program import named
from gavel.policies._validate import check_problem
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray


@dataclass(frozen=True)
class AlloX:
    """minimise the sum of completion times: a job k-th from the end of a worker's queue delays k jobs by R_i / T_ij.

    Jobs are matched to (type, k-th place from the end) at cost k R_i / T_ij; the first job of each queue runs. AlloX
    knows jobs of one accelerator only: here larger gangs, in order of arrival, take their fastest type that has enough
    workers left after the matching. It is solved anew each round, where the original never moves a running job, and
    the original's throttle for fairness (only the oldest jobs are matched) is left out.
    """

    name: ClassVar[str] = "allox"
    formula: ClassVar[str] = "minimise sum_i k_i R_i / T_ij over matchings of jobs to (worker, k-th place from the end)"
    source: ClassVar[str] = "AlloX (EuroSys '20), section 4; Gavel (OSDI '20), section 7 (baseline)"
    order_matters: ClassVar[bool] = True
    promises: ClassVar[frozenset[str]] = frozenset()

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation of whole workers; raises InvalidProblem."""
        check_problem(problem)
        type_of_job = np.full(len(problem.job_ids), -1)
        single = np.flatnonzero(measures.runnable(problem) & (problem.scale_factor == 1))
        _start_matched(problem, single, type_of_job)
        _start_gangs(problem, type_of_job)
        fractions = np.zeros((len(problem.combinations), len(problem.accelerator_types)))
        for row, members in enumerate(problem.combinations):
            if len(members) == 1 and type_of_job[members[0]] >= 0:
                fractions[row, type_of_job[members[0]]] = 1.0
        certificate = Certificate(primal_violation=measures.violation(problem, fractions))
        return named(problem, fractions, certificate, self.name, solver="scipy linear_sum_assignment")

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Relative throughputs, least remaining time first, (n,): an allocation does not show the queues behind it."""
        speed = measures.relative_throughput(problem, allocation.time_fraction)
        return speed[np.argsort(measures.remaining_time_s(problem), kind="stable")]


def _start_matched(problem: AllocationProblem, jobs: IntArray, type_of_job: IntArray) -> None:
    """Sets `type_of_job` (n,) for those of `jobs` that are first in the queue of a worker."""
    from scipy.optimize import linear_sum_assignment

    if not len(jobs):
        return
    time_s = _time_s(problem)[jobs]
    place_type, place_k = _places(problem.capacity_workers, len(jobs))
    reachable = np.isfinite(time_s)
    most = len(jobs) * float(place_k.max()) * float(time_s[reachable].max())  # dearer than any matching without it
    cost = np.where(reachable, time_s, 2 * most)[:, place_type] * place_k
    matched, places = linear_sum_assignment(cost)
    for column in range(len(problem.accelerator_types)):
        here = place_type[places] == column
        own, depth = matched[here], place_k[places[here]]
        first = np.lexsort((time_s[own, column], -depth))[: problem.capacity_workers[column]]
        type_of_job[jobs[own[first]]] = column


def _places(capacity: IntArray, jobs: int) -> tuple[IntArray, IntArray]:
    """Type and distance from the end, from 1, of every place in a queue that `jobs` jobs could need."""
    types, depths = [], []
    for column, workers in enumerate(capacity.tolist()):
        longest = -(-jobs // workers) if workers else 0  # an optimal matching fills the queues of a type evenly
        depths.append(np.repeat(np.arange(1, longest + 1), workers))
        types.append(np.full(longest * workers, column))
    return np.concatenate(types), np.concatenate(depths)


def _start_gangs(problem: AllocationProblem, type_of_job: IntArray) -> None:
    """Sets `type_of_job` (n,) for larger gangs that fit beside the jobs already there."""
    time_s = _time_s(problem)
    left = problem.capacity_workers.copy()
    np.subtract.at(left, type_of_job[type_of_job >= 0], 1)
    for job in np.flatnonzero(problem.scale_factor > 1):
        fits = np.where(left >= problem.scale_factor[job], time_s[job], np.inf)
        if np.isfinite(fits).any():
            type_of_job[job] = int(np.argmin(fits))
            left[type_of_job[job]] -= problem.scale_factor[job]


def _time_s(problem: AllocationProblem) -> FloatArray:
    """Seconds that each job still needs on each type, (n, m); +inf where it cannot run."""
    rates = measures.rate_alone(problem)
    left = np.repeat(np.maximum(1.0, problem.steps_remaining)[:, None], rates.shape[1], axis=1)
    time_s: FloatArray = np.divide(left, rates, out=np.full_like(rates, np.inf), where=rates > 0)
    return time_s


POLICY = AlloX
