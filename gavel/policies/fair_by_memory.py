"""Fairness by memory: the share of the cluster's memory that each job holds is as equal as it can be."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies._fair_shares import FairShares, share_of
from gavel.types import AllocationProblem, FloatArray


@dataclass(frozen=True)
class FairByMemory(FairShares):
    """lexicographically maximise the sorted D_i / w_i, D_i = (a_i / e_i) mem_i / MEM.

    Cores and workers stay limits, but count for nobody's share; a job that states no memory counts with its part of
    the workers. Where everybody needs mostly memory it is `dominant_resource_fairness`.
    """

    name: ClassVar[str] = "fair_by_memory"
    formula: ClassVar[str] = "lexicographically maximise the sorted (a_i / e_i) (mem_i / MEM) / w_i"
    source: ClassVar[str] = "Dean, Porter (SASO '19): fairness by memory; a naive form of Ghodsi et al. (NSDI '11)"
    choose_when: ClassVar[str] = "Choose this when memory is what everybody waits for, and nothing else is scarce."

    def held_by_a_gang(self, problem: AllocationProblem) -> FloatArray:
        """Return the part of the cluster's memory that each running gang holds, (n,), positive."""
        return share_of(problem, 1)


POLICY = FairByMemory
