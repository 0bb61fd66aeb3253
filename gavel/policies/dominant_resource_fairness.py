"""Dominant resource fairness over accelerators, CPUs and memory, and the naive share by accelerators."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gavel.policies import measures
from gavel.policies._fair_shares import FairShares, share_of_workers
from gavel.types import AllocationProblem, FloatArray

Counted = Literal["dominant", "accelerators"]


@dataclass(frozen=True)
class DominantResourceFairness(FairShares):
    """lexicographically maximise the sorted D_i / w_i, D_i = (a_i / e_i) max(s_i / N, cpu_i / CPU, mem_i / MEM).

    a_i / e_i is the job's progress in equal-share gangs, the rest what such a gang holds of the resource it needs most.
    Where accelerators are dominant for everybody this is max-min fairness. `share=accelerators` is the naive form that
    looks at them only; `fair_by_cores` and `fair_by_memory` are those of the other two.
    """

    share: Counted = "dominant"

    name: ClassVar[str] = "dominant_resource_fairness"
    formula: ClassVar[str] = (
        "lexicographically maximise the sorted (a_i / e_i) max(s_i / N, cpu_i / CPU, mem_i / MEM) / w_i"
    )
    source: ClassVar[str] = "Ghodsi et al. (NSDI '11), section 4, over the effective throughput of Gavel (OSDI '20)"
    choose_when: ClassVar[str] = (
        "Choose this when jobs differ much in the CPU cores and memory that they need, and shares should count them."
    )

    def held_by_a_gang(self, problem: AllocationProblem) -> FloatArray:
        """Return the part of the cluster that counts as held by each running gang, (n,), positive."""
        workers = share_of_workers(problem)
        if self.share == "accelerators":
            return workers
        dominant: FloatArray = np.maximum(workers, measures.cpu_and_memory_share(problem).max(axis=0))
        return dominant


POLICY = DominantResourceFairness
