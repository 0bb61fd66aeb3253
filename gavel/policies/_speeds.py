"""Makes a weighted total of relative speeds as large as it can be: the common part of the policies that do."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.packed_totals import Floors, packed_greatest
from gavel.policies.fast.totals import greatest, in_turn
from gavel.policies.programs.pairs import named_pairs
from gavel.policies.programs.program import Program, Solver
from gavel.policies.programs.total import most, total
from gavel.policies.programs.validate import check_problem
from gavel.types import Allocation, AllocationProblem, FloatArray


@dataclass(frozen=True)
class TotalOfSpeeds(ABC):
    """maximise sum_i claim_i a_i / max_j T_ij; for gangs of one the answer is a matching of jobs to workers."""

    solver: Solver = "highs"
    time_limit_s: float = 60.0

    name: ClassVar[str]

    @abstractmethod
    def claim(self, problem: AllocationProblem) -> FloatArray:
        """Return what each job's relative speed counts, (n,), at least 0."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem."""
        check_problem(problem, takes_pair_rates=True)
        least = self.least_speed(problem)
        if measures.is_alone(problem):
            allocation = greatest(problem, self._worth(problem), self.name, least)
        else:
            floors = Floors.of_each(measures.per_best_rate(problem), least, (), np.zeros(0))
            allocation = packed_greatest(problem, self._per_step(problem), self.name, floors)
        return allocation or self.program(named_pairs(problem))

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the linear program that defines the policy."""
        program = Program(problem, solver=self.solver, time_limit_s=self.time_limit_s)
        worth, least = self._worth(problem), self.least_speed(problem)
        return in_turn(problem, most(program, worth, policy=self.name, least_speed=least), worth, least)

    def least_speed(self, problem: AllocationProblem) -> FloatArray:
        """Return the relative throughput that each job has to have, (n,): nothing, unless the policy says more."""
        return np.zeros(len(problem.job_ids))

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the weighted total of relative speeds, (1,)."""
        return total(self._worth(problem), allocation)

    def _worth(self, problem: AllocationProblem) -> FloatArray:
        return measures.value_per_time(problem, self._per_step(problem)[:, None])

    def _per_step(self, problem: AllocationProblem) -> FloatArray:
        """What a step per second of each job is worth, (n,)."""
        return measures.per_best_rate(problem) * self.claim(problem)
