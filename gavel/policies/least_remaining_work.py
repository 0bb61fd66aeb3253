"""Least remaining work: the job with the fewest worker seconds left goes first (shortest remaining service first)."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import AllocationProblem, IntArray


@dataclass(frozen=True)
class LeastRemainingWork(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of s_i R_i / max_j T_ij; equals in order of arrival.

    Where `shortest_job_first` counts the remaining time, this one counts the time of all workers of the gang, so that a
    gang of 8 goes before a job of one worker only if it is done in less than an eighth of its time.
    """

    name: ClassVar[str] = "least_remaining_work"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of s_i R_i / max_j T_ij"
    source: ClassVar[str] = "Tiresias (NSDI '19), section 3.1: shortest remaining service first (SRSF)"
    choose_when: ClassVar[str] = (
        "Choose this when the mean completion time matters most, gangs differ in size, and large work may wait."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"steps_remaining"})

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return jobs_by(measures.remaining_time_s(problem) * problem.scale_factor)


POLICY = LeastRemainingWork
