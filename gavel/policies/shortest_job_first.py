"""Shortest job first: the job that could be done soonest runs on its fastest type, the next on the best left."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import AllocationProblem, IntArray


@dataclass(frozen=True)
class ShortestJobFirst(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of R_i / max_j T_ij; equals in order of arrival."""

    name: ClassVar[str] = "shortest_job_first"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of R_i / max_j T_ij"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Shortest Job First)"
    choose_when: ClassVar[str] = "Choose this when the mean completion time matters most, and long jobs may wait."
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"steps_remaining"})

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return jobs_by(measures.remaining_time_s(problem))


POLICY = ShortestJobFirst
