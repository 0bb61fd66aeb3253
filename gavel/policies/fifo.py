"""First in, first out: the earliest job runs on its fastest type, the next on the best that is left."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies._serving import serve, speed_in_order
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class Fifo:
    """lexicographically maximise a_i / max_j T_ij in order of arrival.

    Gavel states one program with weights that fall by arrival, sum_i (n - i) a_i / max_j T_ij; here each job is put
    strictly before the next, which needs no weights large enough to stand for "infinitely more".
    """

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "fifo"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of arrival"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (FIFO)"
    order_matters: ClassVar[bool] = True

    @property
    def promises(self) -> frozenset[str]:
        """Also Pareto-efficient if nobody is kept back."""
        return frozenset({"monotone_in_capacity", "pareto"} if self.backfill else {"monotone_in_capacity"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation; raises SolveFailed or InvalidProblem."""
        return serve(
            problem,
            self._order,
            policy=self.name,
            backfill=self.backfill,
            time_limit_s=self.time_limit_s,
        )

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Relative throughput in order of arrival, (n,)."""
        return speed_in_order(problem, allocation, self._order(problem))

    def _order(self, problem: AllocationProblem) -> IntArray:
        return np.arange(len(problem.job_ids))


POLICY = Fifo
