"""Maximum total throughput in raw steps per second: what Gavel's code optimises, kept to compare with."""

from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies.fast.totals import greatest, in_turn
from gavel.policies.programs.program import Program, Solver
from gavel.policies.programs.total import most, total
from gavel.policies.programs.validate import check_problem
from gavel.types import Allocation, AllocationProblem, FloatArray


@dataclass(frozen=True)
class MaxTotalThroughput:
    """maximise sum_i w_i a_i in steps per second.

    It adds steps of different models, so jobs with small steps win; `max_total_relative_speed` does not.
    """

    solver: Solver = "highs"
    time_limit_s: float = 60.0

    name: ClassVar[str] = "max_total_throughput"
    formula: ClassVar[str] = "maximise sum_i w_i a_i"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Maximizing Total Throughput)"
    choose_when: ClassVar[str] = (
        "Choose this when only the total of steps per second counts, and single jobs may wait for long."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset({"weight"})
    promises: ClassVar[frozenset[str]] = frozenset({"pareto", "monotone_in_capacity"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem)
        return greatest(problem, _worth(problem), self.name) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the linear program that defines the policy."""
        program = Program(problem, solver=self.solver, time_limit_s=self.time_limit_s)
        return in_turn(problem, most(program, _worth(problem), policy=self.name), _worth(problem))

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the weighted total of throughputs in steps per second, (1,)."""
        return total(_worth(problem), allocation)


def _worth(problem: AllocationProblem) -> FloatArray:
    return measures.value_per_time(problem, problem.weight[:, None])


POLICY = MaxTotalThroughput
