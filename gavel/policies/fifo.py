"""First in, first out: the earliest job runs on its fastest type, the next on the best that is left."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies._serving import ServingInOrder
from gavel.types import AllocationProblem, IntArray


@dataclass(frozen=True)
class Fifo(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of arrival.

    Gavel states one program with weights that fall by arrival, sum_i (n - i) a_i / max_j T_ij; here each job is put
    strictly before the next, which needs no weights large enough to stand for "infinitely more".
    """

    name: ClassVar[str] = "fifo"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of arrival"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (FIFO)"
    choose_when: ClassVar[str] = "Choose this when jobs should be served strictly in the order in which they came."
    order_matters: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset()

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return np.arange(len(problem.job_ids))


POLICY = Fifo
