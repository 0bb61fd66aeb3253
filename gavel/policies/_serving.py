"""Serves jobs one after the other: the common part of first in first out and shortest job first."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies.fast.max_min import in_order
from gavel.policies.fast.turns import in_turn
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import InOrder, One
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class ServingInOrder(ABC):
    """A policy that serves jobs in its `order`; without `backfill` none after one slower than its best rate."""

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str]

    @property
    def promises(self) -> frozenset[str]:
        """Return the properties that hold; also Pareto efficiency with backfill."""
        return frozenset({"monotone_in_capacity", "pareto"} if self.backfill else {"monotone_in_capacity"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation. Raises SolveFailed or InvalidProblem."""
        return serve(problem, self.order, policy=self.name, backfill=self.backfill, time_limit_s=self.time_limit_s)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the relative throughputs in order of service, (n,)."""
        return speed_in_order(problem, allocation, self.order(problem))

    @abstractmethod
    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""


def serve(
    problem: AllocationProblem,
    order: Callable[[AllocationProblem], IntArray],
    *,
    policy: str,
    backfill: bool,
    time_limit_s: float,
) -> Allocation:
    """Return the allocation in which each job, in `order` (n,), is as fast as possible without slowing one before it.

    With `backfill` False no job is served after the first one that does not reach its best rate. In closed form
    where no job has equal rates on two types, else by prices; where neither is certified, by `program`.
    """
    check_problem(problem)
    rows = order(problem)
    allocation = in_turn(problem, policy, rows, backfill=backfill) or in_order(problem, policy, rows, backfill=backfill)
    return allocation or program(problem, order, policy=policy, backfill=backfill, time_limit_s=time_limit_s)


def program(
    problem: AllocationProblem,
    order: Callable[[AllocationProblem], IntArray],
    *,
    policy: str,
    backfill: bool,
    time_limit_s: float,
) -> Allocation:
    """Return the same allocation by one linear program per job, the definition of the policy."""
    stated = Program(problem, solver="highs", time_limit_s=time_limit_s)
    if stated.is_idle:
        return stated.allocation(policy)
    filling = Filling(Stated(stated))
    service = filling.fill(InOrder([One(int(job)) for job in order(problem)]), whole=backfill)
    if backfill:
        return stated.allocation(policy, dual_gap=filling.dual_gap)
    return _only(stated, service, policy)


def _only(program: Program, service: FloatArray, policy: str) -> Allocation:
    """The allocation that gives `service` (n,) with the fewest workers, and nothing to other jobs."""
    cp = cvxpy()

    fewest = cp.Minimize(cp.sum(program.held @ program.x))
    return program.solve(policy, fewest, [program.service >= service * (1 - 1e-9)])


def speed_in_order(problem: AllocationProblem, allocation: Allocation, order: IntArray) -> FloatArray:
    """Return the relative throughput of each job, (n,), in the order of service."""
    return measures.relative_throughput(problem, allocation.time_fraction)[order]
