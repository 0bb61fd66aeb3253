"""A part of every type is reserved for short jobs, so that they never queue behind long ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.errors import InvalidRequest
from gavel.policies import measures
from gavel.policies._serving import speed_in_order
from gavel.policies.fast.max_min import Stage, by_curves
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import InOrder, One
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class ShortAndLongApart:
    """lexicographically maximise a_i / max_j T_ij in order of arrival subject to long jobs holding (1 - r) N_j at most.

    A job is long if the time that it has held its workers, and its remaining time on the best type, are `threshold_s`
    seconds together or more: both of one job add up to its length, so that a long job stays one near its end. Short
    jobs may use every worker. What they leave of the reserved part r is in no job's target; a round lends it to long
    jobs until its end, for rounds let no worker idle that a job could use.
    """

    reserved: float = 0.2
    threshold_s: float = 1800.0
    time_limit_s: float = 60.0

    name: ClassVar[str] = "short_and_long_apart"
    formula: ClassVar[str] = (
        "lexicographically maximise a_i / max_j T_ij in order of arrival, sum_(i long) s_i X_ij <= (1 - r) N_j"
    )
    source: ClassVar[str] = "Hawk (ATC '15), section 3: a partition for short jobs; Mercury (ATC '15)"
    choose_when: ClassVar[str] = (
        "Choose this when many short jobs share the cluster with long ones, and should start at once."
    )
    order_matters: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"steps_remaining", "attained_service_s"})
    promises: ClassVar[frozenset[str]] = frozenset({"monotone_in_capacity"})

    def __post_init__(self) -> None:
        """Refuse a reserved part that leaves long jobs nothing."""
        if not 0 < self.reserved < 1:
            raise InvalidRequest("policy", f"reserved={self.reserved:g}: give a part between 0 and 1, as 0.2")

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        rows = np.arange(len(problem.job_ids))
        stages = [Stage(rows, _in_order_of_arrival(problem))]
        return by_curves(problem, self.name, stages, self._caps(problem)) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by one linear program per job, the definition of the policy."""
        caps = self._caps(problem)
        program = Program(problem, solver="highs", time_limit_s=self.time_limit_s, parts=caps)
        if program.is_idle:
            return program.allocation(self.name)
        filling = Filling(Stated(program))
        filling.fill(_in_order_of_arrival(problem))
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the relative throughputs in order of arrival, (n,)."""
        return speed_in_order(problem, allocation, np.arange(len(problem.job_ids)))

    def _caps(self, problem: AllocationProblem) -> list[tuple[IntArray, float]]:
        """The rows of the long jobs, and the part of every type that they hold at most; nothing if there are none."""
        long = np.flatnonzero(length_s(problem) >= self.threshold_s)
        return [(long, 1.0 - self.reserved)] if long.size else []


def length_s(problem: AllocationProblem) -> FloatArray:
    """Return the seconds of each job from its start to its end if it ran all the time, (n,); +inf if it cannot run."""
    return problem.attained_service_s / problem.scale_factor + measures.remaining_time_s(problem)


def _in_order_of_arrival(problem: AllocationProblem) -> InOrder:
    return InOrder([One(job) for job in range(len(problem.job_ids))])


POLICY = ShortAndLongApart
