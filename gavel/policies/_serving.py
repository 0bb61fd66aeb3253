"""Serving jobs one after the other: what first in first out and shortest job first share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from gavel.policies import measures
from gavel.policies._curves import InOrder, One
from gavel.policies._filling import Filling, Stated
from gavel.policies._program import Program, cvxpy
from gavel.policies._validate import check_problem
from gavel.policies.fast.family import in_order
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray


@dataclass(frozen=True)
class ServingInOrder(ABC):
    """A policy that serves jobs in an `order` of its own; without `backfill` nobody behind a job that is kept back."""

    backfill: bool = True
    time_limit_s: float = 60.0

    name: ClassVar[str]

    @property
    def promises(self) -> frozenset[str]:
        """Also Pareto-efficient if nobody is kept back."""
        return frozenset({"monotone_in_capacity", "pareto"} if self.backfill else {"monotone_in_capacity"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation; raises SolveFailed or InvalidProblem."""
        return serve(problem, self.order, policy=self.name, backfill=self.backfill, time_limit_s=self.time_limit_s)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Relative throughput in order of service, (n,)."""
        return speed_in_order(problem, allocation, self.order(problem))

    @abstractmethod
    def order(self, problem: AllocationProblem) -> IntArray:
        """Rows of the jobs, (n,), the one served first first."""


def serve(
    problem: AllocationProblem,
    order: Callable[[AllocationProblem], IntArray],
    *,
    policy: str,
    backfill: bool,
    time_limit_s: float,
) -> Allocation:
    """Each job in turn, by `order` (n,) of the problem, is as fast as it can be without slowing one before it.

    With `backfill` False nobody is served behind the first job that does not reach its best rate. By prices where that
    is certified, else by `program`.
    """
    check_problem(problem)
    by_prices = in_order(problem, policy, order(problem), backfill=backfill)
    return by_prices or program(problem, order, policy=policy, backfill=backfill, time_limit_s=time_limit_s)


def program(
    problem: AllocationProblem,
    order: Callable[[AllocationProblem], IntArray],
    *,
    policy: str,
    backfill: bool,
    time_limit_s: float,
) -> Allocation:
    """The same by one linear program after the other, which define it."""
    stated = Program(problem, solver="highs", time_limit_s=time_limit_s)
    if stated.is_idle:
        return stated.allocation(policy)
    filling = Filling(Stated(stated))
    service = filling.fill(InOrder([One(int(job)) for job in order(problem)]), whole=backfill)
    if backfill:
        return stated.allocation(policy, dual_gap=filling.dual_gap)
    return _only(stated, service, policy)


def _only(program: Program, service: FloatArray, policy: str) -> Allocation:
    """The allocation that gives `service` (n,) with the fewest workers, so that nobody else gets any."""
    cp = cvxpy()

    fewest = cp.Minimize(cp.sum(program.held @ program.x))
    return program.solve(policy, fewest, [program.service >= service * (1 - 1e-9)])


def speed_in_order(problem: AllocationProblem, allocation: Allocation, order: IntArray) -> FloatArray:
    """Relative throughput of each job (n,) in the order of service."""
    return measures.relative_throughput(problem, allocation.time_fraction)[order]
