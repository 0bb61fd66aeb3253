"""Least remaining work: the job with the fewest worker seconds left goes first (shortest remaining service first)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gavel.policies import measures
from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import AllocationProblem, FloatArray, IntArray

WorkOf = Literal["job", "user"]


@dataclass(frozen=True)
class LeastRemainingWork(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of s_i R_i / max_j T_ij; equals in order of arrival.

    Where `shortest_job_first` counts the remaining time, this one counts the time of all workers of the gang, so that a
    gang of 8 goes before a job of one worker only if it is done in less than an eighth of its time. With
    `work_of=user` the work left of all jobs of the user counts together, for sets of tasks that each have a user.
    """

    work_of: WorkOf = "job"

    name: ClassVar[str] = "least_remaining_work"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of s_i R_i / max_j T_ij"
    source: ClassVar[str] = "Tiresias (NSDI '19), section 3.1: shortest remaining service first (SRSF)"
    choose_when: ClassVar[str] = (
        "Choose this when the mean completion time matters most, gangs differ in size, and large work may wait."
    )
    order_matters: ClassVar[bool] = False

    @property
    def reads(self) -> frozenset[str]:
        """Return the fields read: the steps that are left, and whose they are if users count."""
        return frozenset({"steps_remaining", "users"} if self.work_of == "user" else {"steps_remaining"})

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        work_s = measures.remaining_time_s(problem) * problem.scale_factor
        return jobs_by(work_s if self.work_of == "job" else _of_users(problem, work_s))


def _of_users(problem: AllocationProblem, work_s: FloatArray) -> FloatArray:
    """The work of each job's user, (n,); jobs that can run nowhere are left out."""
    _, user = np.unique(np.array(problem.users, dtype=np.str_), return_inverse=True)
    of_user = np.bincount(user, weights=np.where(measures.runnable(problem), work_s, 0.0))
    return of_user.astype(np.float64)[user]


POLICY = LeastRemainingWork
