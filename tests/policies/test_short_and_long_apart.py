"""A part of the cluster for short jobs: cases worked by hand, and each job in turn by an independent program."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.fifo import Fifo
from gavel.policies.short_and_long_apart import ShortAndLongApart, length_s
from gavel.types import Tier
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds
from tests.policies.oracles import served_in_order


def test_short_jobs_have_the_reserved_part_however_many_long_ones_came_before() -> None:
    problem = a_problem([[1.0]] * 6, [4], steps_remaining=[9000.0] * 4 + [60.0] * 2)
    time = ShortAndLongApart(reserved=0.25).allocate(problem).time_fraction[:, 0]
    assert time == pytest.approx([1, 1, 1, 0, 1, 0])


def test_short_jobs_that_came_before_long_ones_may_use_every_worker() -> None:
    problem = a_problem([[1.0]] * 4, [3], steps_remaining=[60.0] * 3 + [9000.0])
    assert ShortAndLongApart().allocate(problem).time_fraction[:, 0] == pytest.approx([1, 1, 1, 0])


def test_what_short_jobs_leave_of_their_part_is_in_nobody_s_target() -> None:
    problem = a_problem([[1.0]] * 5, [4], steps_remaining=[9000.0] * 5)
    time = ShortAndLongApart(reserved=0.5).allocate(problem).time_fraction[:, 0]
    assert time == pytest.approx([1, 1, 0, 0, 0])


def test_a_long_job_stays_one_near_its_end() -> None:
    problem = a_problem(
        [[2.0], [2.0]],
        [1],
        scale_factor=[1, 1],
        steps_remaining=[20.0, 20.0],
        attained_service_s=np.asarray([1790.0, 1780.0]),
    )
    assert length_s(problem) == pytest.approx([1800.0, 1790.0])
    time = ShortAndLongApart(reserved=0.3).allocate(problem).time_fraction[:, 0]
    assert time == pytest.approx([0.7, 0.3])


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_without_long_jobs_it_is_first_in_first_out(seed: int) -> None:
    problem = an_instance(seed, jobs=6, types=3)
    answers = [policy.allocate(problem) for policy in (Fifo(), ShortAndLongApart(threshold_s=1e12))]
    services = [measures.service(problem, each.time_fraction) for each in answers]
    assert services[1] == pytest.approx(services[0], abs=1e-5)


@pytest.mark.parametrize("seed", seeds(8, 100))
def test_each_job_in_turn_gets_the_most_it_can_within_what_long_jobs_may_hold(seed: int) -> None:
    problem = an_instance(seed, jobs=6, types=2)
    middle_s = float(np.median(length_s(problem)))
    policy = ShortAndLongApart(reserved=0.3, threshold_s=middle_s)
    tiers = (Tier(name="short"), Tier(name="long", cap=0.7))
    is_long = (length_s(problem) >= middle_s).astype(np.int64)
    expected = served_in_order(replace(problem, tiers=tiers, tier_of_job=is_long), np.arange(6))
    for allocation in (policy.allocate(problem), policy.program(problem)):
        assert measures.service(problem, allocation.time_fraction) == pytest.approx(expected, rel=1e-4, abs=1e-4)
