"""Fairness by CPU cores: the share of the cluster's cores that each job holds is as equal as it can be."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies._fair_shares import FairShares, share_of
from gavel.types import AllocationProblem, FloatArray


@dataclass(frozen=True)
class FairByCores(FairShares):
    """lexicographically maximise the sorted D_i / w_i, D_i = (a_i / e_i) cpu_i / CPU.

    Memory and workers stay limits, but count for nobody's share; a job that states no cores counts with its part of
    the workers. Where everybody needs mostly cores it is `dominant_resource_fairness`.
    """

    name: ClassVar[str] = "fair_by_cores"
    formula: ClassVar[str] = "lexicographically maximise the sorted (a_i / e_i) (cpu_i / CPU) / w_i"
    source: ClassVar[str] = "Dean, Porter (SASO '19): fairness by threads; a naive form of Ghodsi et al. (NSDI '11)"
    choose_when: ClassVar[str] = "Choose this when CPU cores are what everybody waits for, and nothing else is scarce."

    def held_by_a_gang(self, problem: AllocationProblem) -> FloatArray:
        """Return the part of the cluster's CPU cores that each running gang holds, (n,), positive."""
        return share_of(problem, 0)


POLICY = FairByCores
