"""Shortest job first: the job that could be done soonest runs on its fastest type, the next on the best left."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies._filling import jobs_by
from gavel.policies._serving import serve, speed_in_order
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class ShortestJobFirst:
    """lexicographically maximise a_i / max_j T_ij in order of R_i / max_j T_ij; equals in order of arrival."""

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str] = "shortest_job_first"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of R_i / max_j T_ij"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Shortest Job First)"
    order_matters: ClassVar[bool] = False

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
        """Relative throughput in order of service, (n,)."""
        return speed_in_order(problem, allocation, self._order(problem))

    def _order(self, problem: AllocationProblem) -> IntArray:
        return jobs_by(measures.remaining_time_s(problem))


POLICY = ShortestJobFirst
