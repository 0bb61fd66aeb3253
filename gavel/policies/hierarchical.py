"""Tiers share the cluster by weight and guarantee; inside, each tier follows an objective of its own."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.policies._curves import Curve, Share
from gavel.policies._filling import Filling, Stated
from gavel.policies._objectives import OBJECTIVES
from gavel.policies._program import Program
from gavel.policies._validate import check_problem
from gavel.policies.fast.family import by_curves
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray, Tier


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A tier that has jobs, the rows of these, and how its service is spread over them."""

    tier: Tier
    jobs: IntArray
    curve: Curve


@dataclass(frozen=True)
class Hierarchical:
    """lexicographically maximise the sorted sigma_k / W_k subject to sigma_k >= sigma0_k.

    sigma_k is the service of tier k, spread over its jobs by the tier's target curve; W_k its weight; sigma0_k what it
    reaches alone on its guaranteed fraction g_k of every type. A job that cannot rise freezes and its tier's curve goes
    on over the others; what a tier cannot use flows on to the other tiers.

    Example: one type, 6 workers, 1 step/s each, every gang 1, so service is workers and no job can use more than 1.
    gold (weight 2, fairness) has 4 jobs, bronze (weight 1, fifo) 3. Shares by weight are 4 and 2: gold's jobs get 1
    each, bronze's first two 1 each, its third 0. With only 2 jobs gold can use 2, and the 4 left go to bronze: all 3
    run. With a guarantee of 1/2 bronze has 3 at once (its three jobs), and each of gold's 4 jobs 3/4.
    """

    time_limit_s: float = 60.0

    name: ClassVar[str] = "hierarchical"
    formula: ClassVar[str] = "lexicographically maximise the sorted sigma_k / W_k subject to sigma_k >= sigma0_k"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.3 (hierarchical policies), with an objective for each tier"
    order_matters: ClassVar[bool] = True
    promises: ClassVar[frozenset[str]] = frozenset({"pareto"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """A checked allocation, by prices where that is certified; raises SolveFailed or InvalidProblem.

        InvalidProblem also for a tier's objective without a curve.
        """
        check_problem(problem)
        groups = _groups(problem)
        tiers = Share([group.curve for group in groups], [group.tier.weight for group in groups])
        promised = [(group.curve, group.jobs, group.tier.guarantee) for group in groups if group.tier.guarantee > 0]
        return by_curves(problem, self.name, promised, tiers) or self.program(problem)

    def program(self, problem: AllocationProblem) -> Allocation:
        """The same by linear programs, which define it."""
        groups = _groups(problem)
        program = Program(problem, solver="highs", time_limit_s=self.time_limit_s)
        if program.is_idle:
            return program.allocation(self.name)
        filling = Filling(Stated(program))
        capacity = problem.capacity_workers.astype(float)
        floors = np.zeros(len(problem.job_ids))
        for group in groups:
            if group.tier.guarantee > 0:
                floors += filling.fill(group.curve, workers=group.tier.guarantee * capacity)
        tiers = Share([group.curve for group in groups], [group.tier.weight for group in groups])
        filling.fill(tiers, start=floors)
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Service over weight of each tier that has jobs, least first."""
        got = measures.service(problem, allocation.time_fraction)
        return np.sort([got[group.jobs].sum() / group.tier.weight for group in _groups(problem)])


def _groups(problem: AllocationProblem) -> tuple[_Group, ...]:
    """Every tier that has jobs; raises InvalidProblem for a tier that no allocation can satisfy."""
    jobs_of = [np.flatnonzero(problem.tier_of_job == index) for index in range(len(problem.tiers))]
    present = [(tier, jobs) for tier, jobs in zip(problem.tiers, jobs_of, strict=True) if len(jobs)]
    _check_tiers(tuple(tier for tier, _ in present))
    weights = sum(tier.weight for tier, _ in present)
    return tuple(
        _Group(tier, jobs, OBJECTIVES[tier.objective].curve(problem, jobs, tier.weight / weights))
        for tier, jobs in present
    )


def _check_tiers(tiers: tuple[Tier, ...]) -> None:
    for tier in tiers:
        if tier.objective not in OBJECTIVES:
            choices = ", ".join(OBJECTIVES)
            raise InvalidProblem(f"tiers[{tier.name}].objective", f"is {tier.objective}; give one of {choices}")
        if not (math.isfinite(tier.weight) and tier.weight > 0):
            raise InvalidProblem(f"tiers[{tier.name}].weight", f"is {tier.weight}; give a positive number")
        if not 0 <= tier.guarantee <= 1:
            raise InvalidProblem(f"tiers[{tier.name}].guarantee", f"is {tier.guarantee}; give a fraction in [0, 1]")
    promised = sum(tier.guarantee for tier in tiers)
    if promised > 1 + 1e-9:
        names = ", ".join(tier.name for tier in tiers if tier.guarantee)
        raise InvalidProblem("tiers.guarantee", f"sums to {promised:g} over {names}; lower it to at most 1")


POLICY = Hierarchical
