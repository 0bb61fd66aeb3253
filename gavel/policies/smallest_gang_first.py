"""Smallest gang first: jobs of few workers go before jobs of many, in order of arrival among equals."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import AllocationProblem, IntArray


@dataclass(frozen=True)
class SmallestGangFirst(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of s_i; equals in order of arrival.

    Nothing is estimated: how many workers a job asks for is known when it comes, and often goes with its length.
    """

    name: ClassVar[str] = "smallest_gang_first"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of s_i, then of arrival"
    source: ClassVar[str] = "Majumdar, Eager, Bunt (SIGMETRICS '88): smallest number of processes first"
    choose_when: ClassVar[str] = (
        "Choose this when lengths tell nothing, small gangs should not wait for large ones, and large ones may wait."
    )
    order_matters: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset()

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return jobs_by(problem.scale_factor.astype(float))


POLICY = SmallestGangFirst
