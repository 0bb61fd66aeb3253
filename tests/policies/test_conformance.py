"""Every policy in the folder passes the public suite; and the suite notices policies that are wrong."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import registry
from gavel.policies.conformance import CHECKS, check_policy
from gavel.policies.equal_share import EqualShare
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.types import Allocation, AllocationProblem

SPECS = [
    *(info.name for info in registry.available()),
    "max_min_fairness?water_filling=false",
    "fifo?backfill=false",
    "shortest_job_first?backfill=false",
    "max_min_fairness?time_limit_s=5",
    "finish_time_fairness?backfill=false",
    "makespan?backfill=false",
    "max_total_relative_speed?ageing=attained_service",
    "rank_weighted_speed?length=attained_service",
    "min_cost?deadlines=false",
    "dominant_resource_fairness?share=accelerators",
    "fair_by_memory?among=users",
    "least_attained_service?queues=continuous",
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
@pytest.mark.parametrize("spec", SPECS)
def test_every_policy_conforms(spec: str, check) -> None:  # noqa: ANN001
    check(registry.load(spec))


class Overbooking(EqualShare):
    """Gives everybody everything."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        allocation = super().allocate(problem)
        return replace(allocation, time_fraction=np.ones_like(allocation.time_fraction))


class Careless(EqualShare):
    """Checks nothing."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        return super().allocate(
            replace(problem, throughput_steps_per_s=np.nan_to_num(np.abs(problem.throughput_steps_per_s)))
        )


class Stingy(MaxMinFairness):
    """Wastes a part of everything."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        allocation = super().allocate(problem)
        return replace(allocation, time_fraction=0.5 * allocation.time_fraction)


@pytest.mark.parametrize("wrong", [Overbooking(), Careless(), Stingy()], ids=lambda policy: type(policy).__name__)
def test_the_suite_notices_a_wrong_policy(wrong: EqualShare) -> None:
    with pytest.raises(AssertionError):
        check_policy(wrong)
