"""A weighted priority is each of the well-known orders at its weights, and goes by each feature that has a weight."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.policies import registry
from gavel.policies._serving import ServingInOrder
from gavel.policies.weighted_priority import FEATURES, RULES, WeightedPriority
from gavel.types import AllocationProblem, Tier
from tests.builders import a_problem

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"

numbers = st.integers(1, 12)  # few, so that many jobs are alike and the products of many are
drawn_jobs = st.lists(st.tuples(numbers, st.sampled_from([1, 2, 3, 4, 6]), numbers), min_size=1, max_size=12)


def problem_of(jobs: list[tuple[int, int, int]]) -> AllocationProblem:
    """Jobs of (steps, workers, worker seconds held), of one step a second on one type."""
    return a_problem(
        [[1.0]] * len(jobs),
        [8],
        steps_remaining=[float(steps) for steps, _, _ in jobs],
        scale_factor=[workers for _, workers, _ in jobs],
        attained_service_s=np.asarray([float(held_s) for _, _, held_s in jobs]),
    )


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=300 if FULL else 30)
@given(jobs=drawn_jobs)
def test_the_named_weights_give_the_order_and_the_allocation_of_the_policy_itself(
    name: str, jobs: list[tuple[int, int, int]]
) -> None:
    problem, policy = problem_of(jobs), registry.load(name)
    assert isinstance(policy, ServingInOrder)
    assert RULES[name].order(problem).tolist() == policy.order(problem).tolist()
    fractions = [each.allocate(problem).time_fraction for each in (RULES[name], policy)]
    assert np.array_equal(*fractions)


@pytest.mark.parametrize("name", RULES)
def test_the_named_weights_read_what_the_policy_reads(name: str) -> None:
    assert RULES[name].reads == registry.load(name).reads  # type: ignore[attr-defined]


def test_weights_of_either_sign_turn_an_order_round() -> None:
    problem = problem_of([(5, 1, 0), (9, 1, 0), (7, 1, 0)])
    assert WeightedPriority(remaining_time=-1.0).order(problem).tolist() == [0, 2, 1]
    assert WeightedPriority(remaining_time=1.0).order(problem).tolist() == [1, 2, 0]


def test_an_hour_of_age_counts_its_weight_against_the_logarithm_of_the_remaining_time() -> None:
    problem = a_problem([[1.0]] * 2, [1], steps_remaining=[np.e**2 * 60, 60.0], age_s=[3 * 3600.0, 0.0])
    assert WeightedPriority(remaining_time=-1.0, age=0.7).order(problem).tolist() == [0, 1]
    assert WeightedPriority(remaining_time=-1.0, age=0.6).order(problem).tolist() == [1, 0]


def test_a_job_that_is_nearly_as_fast_everywhere_may_go_later() -> None:
    problem = a_problem([[2.0, 2.0], [4.0, 1.0]], [1, 1])
    assert FEATURES["relative_speed"](problem) == pytest.approx([1.0, 5 / 8])
    assert WeightedPriority(relative_speed=-1.0).order(problem).tolist() == [1, 0]


def test_the_lag_of_a_tier_is_its_part_of_the_weight_less_its_part_of_what_was_held() -> None:
    problem = a_problem(
        [[1.0]] * 3,
        [1],
        tiers=(Tier(name="gold", weight=3.0), Tier(name="grey", weight=4.0), Tier(name="iron")),
        tier_of_job=[2, 0, 2],
        attained_service_s=np.asarray([10.0, 30.0, 20.0]),
    )
    assert FEATURES["tier_lag"](problem) == pytest.approx([0.25 - 0.5, 0.75 - 0.5, 0.25 - 0.5])
    assert WeightedPriority(tier_lag=1.0).order(problem).tolist() == [1, 0, 2]


def test_a_job_that_can_run_nowhere_spoils_no_feature() -> None:
    problem = a_problem([[0.0], [1.0]], [1])
    every = WeightedPriority(*[True, 60.0], *[1.0] * len(FEATURES))
    assert np.isfinite(every.priority(problem)).all()
    assert every.allocate(problem).time_fraction[:, 0] == pytest.approx([0.0, 1.0])
