"""Finish-time fairness against closed forms and a bisection over linear programs."""

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.finish_time_fairness import FinishTimeFairness
from tests.builders import a_problem
from tests.policies.instances import an_instance, idle_pairs, seeds
from tests.policies.oracles import Oracle, least_rho


def test_identical_new_jobs_on_one_type_share_it_evenly_and_end_as_if_isolated() -> None:
    problem = a_problem([[2.0]] * 4, [1], age_s=[0.0] * 4)
    allocation = FinishTimeFairness().allocate(problem)
    assert allocation.time_fraction[:, 0] == pytest.approx([0.25] * 4, rel=1e-5)
    assert FinishTimeFairness().objective(problem, allocation)[0] == pytest.approx(-1.0, rel=1e-5)


def test_a_job_that_has_waited_in_vain_gets_more_than_one_that_has_just_come() -> None:
    problem = a_problem([[1.0], [1.0]], [1], age_s=[1000.0, 0.0], steps_remaining=[1000.0, 1000.0])
    waited, fresh = FinishTimeFairness().allocate(problem).time_fraction[:, 0]
    # equal rho: 1000 + 1000 / x = 1000 / (1 - x)
    assert waited == pytest.approx((np.sqrt(5) - 1) / 2, rel=1e-5)
    assert fresh == pytest.approx(1 - waited, rel=1e-5)


def test_a_job_of_twice_the_weight_ends_at_half_the_rho() -> None:
    problem = a_problem([[1.0], [1.0]], [1], age_s=[0.0, 0.0], weight=[2.0, 1.0])
    assert FinishTimeFairness().allocate(problem).time_fraction[:, 0] == pytest.approx([2 / 3, 1 / 3], rel=1e-5)


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_the_worst_rho_agrees_with_a_bisection_and_the_rest_is_not_wasted(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 5, types=2 + seed % 2)
    policy, oracle = FinishTimeFairness(), Oracle(problem)
    allocation = policy.allocate(problem)
    able = oracle.equal > 0
    if able.any():
        slices = np.where(
            able[:, None] & (oracle.rates > 0), oracle.workers / (able.sum() * oracle.scale[:, None]), 0.0
        )
        slices /= np.maximum(1.0, slices.sum(axis=1, keepdims=True))
        rate = np.where(able, (oracle.rates * slices).sum(axis=1), 1.0)
        isolated_s = problem.isolated_time_s + problem.steps_remaining / rate
        assert -policy.objective(problem, allocation)[0] == pytest.approx(least_rho(problem, isolated_s), rel=1e-4)
    assert not idle_pairs(problem, allocation).any()


def test_a_job_with_nothing_left_to_do_is_served_like_one_with_a_single_step() -> None:
    problem = a_problem([[1.0], [1.0]], [1], steps_remaining=[0.0, 50.0])
    allocation = FinishTimeFairness().allocate(problem)
    assert measures.violation(problem, allocation.time_fraction) <= 1e-6
    assert (allocation.time_fraction > 0).all()
