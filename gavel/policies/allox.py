"""AlloX: jobs are matched to places in the queues of workers so that their mean completion time is least."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.policies.programs.validate import check_one_size, check_problem
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

MOST_BY_ASSIGNMENT = 400_000  # jobs times places


@dataclass(frozen=True)
class AlloX:
    """minimise the sum of completion times: a job k-th from the end of a worker's queue delays k jobs by R_i / T_ij.

    Jobs are matched to (type, k-th place from the end) at cost k R_i / T_ij; the first job of each queue runs. AlloX
    knows jobs of one accelerator only: here larger gangs, in order of arrival, take their fastest type that has enough
    workers left after the matching. It is solved anew each round, where the original never moves a running job, and
    the original's throttle for fairness (only the oldest jobs are matched) is left out.
    """

    time_limit_s: float = 60.0

    name: ClassVar[str] = "allox"
    formula: ClassVar[str] = "minimise sum_i k_i R_i / T_ij over matchings of jobs to (worker, k-th place from the end)"
    source: ClassVar[str] = "AlloX (EuroSys '20), section 4; Gavel (OSDI '20), section 7 (baseline)"
    choose_when: ClassVar[str] = (
        "Choose this when the mean completion time of jobs on single workers matters most, and long jobs may wait."
    )
    order_matters: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"steps_remaining"})
    promises: ClassVar[frozenset[str]] = frozenset()

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation of whole workers. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        check_one_size(problem)
        type_of_job = np.full(len(problem.job_ids), -1)
        single = np.flatnonzero(measures.runnable(problem) & (problem.scale_factor == 1))
        _start_matched(problem, single, type_of_job, self.time_limit_s)
        _start_gangs(problem, type_of_job)
        fractions = np.zeros((len(problem.combinations), len(problem.accelerator_types)))
        for row, members in enumerate(problem.combinations):
            if len(members) == 1 and type_of_job[members[0]] >= 0:
                fractions[row, type_of_job[members[0]]] = 1.0
        certificate = Certificate(primal_violation=measures.violation(problem, fractions))
        return named(problem, fractions, certificate, self.name, solver="assignment")

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the relative throughputs, least remaining time first, (n,): an allocation does not show the queues."""
        speed = measures.relative_throughput(problem, allocation.time_fraction)
        return speed[np.argsort(measures.remaining_time_s(problem), kind="stable")]


def _start_matched(problem: AllocationProblem, jobs: IntArray, type_of_job: IntArray, time_limit_s: float) -> None:
    """Set `type_of_job` (n,) for those of `jobs` that are first in the queue of a worker."""
    if not len(jobs):
        return
    time_s = _time_s(problem)[jobs]
    place_type, place_k = _places(problem.capacity_workers, len(jobs))
    cost = time_s[:, place_type] * place_k
    places = _matched(cost, problem.capacity_workers[place_type], time_limit_s)
    for column in range(len(problem.accelerator_types)):
        own = np.flatnonzero(place_type[places] == column)
        first = np.lexsort((time_s[own, column], -place_k[places[own]]))[: problem.capacity_workers[column]]
        type_of_job[jobs[own[first]]] = column


def _matched(cost: FloatArray, room: IntArray, time_limit_s: float) -> IntArray:
    """The column of each row, such that the sum of `cost` is least and no column has more than its `room`.

    A transportation problem: few jobs are assigned to single workers (the Hungarian method, which grows with the cube
    of their number), many by the linear program, whose vertices are integral. Entries of infinite cost are not used.
    """
    from scipy import sparse
    from scipy.optimize import linear_sum_assignment, linprog

    if len(cost) * int(room.sum()) <= MOST_BY_ASSIGNMENT:
        column = np.repeat(np.arange(len(room)), room)
        return np.asarray(column[linear_sum_assignment(cost[:, column])[1]])
    rows, columns = np.nonzero(np.isfinite(cost))
    entries, ones = np.arange(len(rows)), np.ones(len(rows))
    wanted = cost[rows, columns]
    answer = linprog(
        wanted / np.median(wanted),
        A_eq=sparse.csr_array((ones, (rows, entries)), shape=(len(cost), len(rows))),
        b_eq=np.ones(len(cost)),
        A_ub=sparse.csr_array((ones, (columns, entries)), shape=(len(room), len(rows))),
        b_ub=room,
        method="highs-ipm",  # with crossover to a vertex; the simplex method is slower here by the number of places
        options={"time_limit": time_limit_s},
    )
    if answer.status != 0:
        raise SolveFailed(f"the matching was not solved: {answer.message}")
    used = answer.x > 0.5
    if used.sum() != len(cost) or np.abs(answer.x - used).max() > MOST_VIOLATION:
        raise SolveFailed("the matching came back in fractions")
    return np.asarray(columns[used])  # entries are in order of rows


def _places(capacity: IntArray, jobs: int) -> tuple[IntArray, IntArray]:
    """Type and distance from the end, from 1, of the places that `jobs` jobs could need; one for a type's workers."""
    longest = [-(-jobs // workers) if workers else 0 for workers in capacity.tolist()]  # queues of a type fill evenly
    depth = [np.arange(1, length + 1) for length in longest]
    return np.repeat(np.arange(len(capacity)), longest), np.concatenate(depth)


def _start_gangs(problem: AllocationProblem, type_of_job: IntArray) -> None:
    """Set `type_of_job` (n,) for larger gangs that fit in addition to the jobs already placed."""
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
