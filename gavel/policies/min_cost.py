"""Minimum cost: work is done where a dollar buys the most steps, and deadlines are kept."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.policies.fast.totals import greatest, in_turn
from gavel.policies.programs.deadlines import keep_deadlines
from gavel.policies.programs.program import Program, Solver
from gavel.policies.programs.total import most, total
from gavel.policies.programs.validate import check_problem
from gavel.types import Allocation, AllocationProblem, FloatArray


@dataclass(frozen=True)
class MinCost:
    """maximise sum_i s_i w_i sum_j (T_ij / p_j) / max_k (T_ik / p_k) X_ij subject to a_i >= R_i / (deadline_i - now).

    T_ij / p_j is what a dollar buys on type j, taken relative to the job's cheapest type, since steps of different
    models cannot be added. A deadline that cannot be kept is named in the allocation's notes and given up, one at a
    time and the most expensive first, until the others can be kept; that job then competes like one without a deadline.
    """

    deadlines: bool = True
    solver: Solver = "highs"
    time_limit_s: float = 60.0

    name: ClassVar[str] = "min_cost"
    formula: ClassVar[str] = (
        "maximise sum_i s_i w_i sum_j (T_ij / p_j) / max_k (T_ik / p_k) X_ij subject to a_i >= R_i / (deadline_i - now)"
    )
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Minimizing Cost, with SLOs)"
    choose_when: ClassVar[str] = "Choose this when accelerators are paid by the hour and jobs have deadlines."
    order_matters: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset()

    def reads(self, problem: AllocationProblem) -> frozenset[str]:
        """Return the fields read: weights and prices; if a deadline counts, also those that say what it needs."""
        if not (self.deadlines and np.isfinite(problem.deadline_at_s).any()):
            return frozenset({"weight", "price_usd_per_hour"} | ({"deadline_at_s"} if self.deadlines else set()))
        return frozenset({"weight", "price_usd_per_hour", "deadline_at_s", "now_s", "steps_remaining"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem.

        InvalidProblem also for a type that costs nothing.
        """
        check_problem(problem)
        _check_prices(problem)
        if self.deadlines and np.isfinite(problem.deadline_at_s).any():
            return self.program(problem)
        return greatest(problem, _worth(problem), self.name) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the linear programs that define the policy."""
        program = Program(problem, solver=self.solver, time_limit_s=self.time_limit_s)
        if program.is_idle or not self.deadlines:
            return in_turn(problem, most(program, _worth(problem), policy=self.name), _worth(problem))
        least, notes = keep_deadlines(program)
        answer = most(program, _worth(problem), policy=self.name, least_speed=least)
        return replace(in_turn(problem, answer, _worth(problem), least), notes=notes)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the weighted total of steps per dollar relative to each job's cheapest type, (1,)."""
        return total(_worth(problem), allocation)


def _worth(problem: AllocationProblem) -> FloatArray:
    """What a unit of time of each combination on each type is worth, (c, m)."""
    per_dollar = measures.rate_per_worker(problem) / problem.price_usd_per_hour
    best = per_dollar.max(axis=1, initial=0.0)
    claim = np.divide(problem.weight, best, out=np.zeros_like(best), where=best > 0)
    return measures.value_per_time(problem, claim[:, None] / problem.price_usd_per_hour)


def _check_prices(problem: AllocationProblem) -> None:
    for column in np.flatnonzero(problem.price_usd_per_hour == 0):
        name = problem.accelerator_types[column]
        raise InvalidProblem(f"price_usd_per_hour[{name}]", "is 0; give a positive price, or use another policy")


POLICY = MinCost
