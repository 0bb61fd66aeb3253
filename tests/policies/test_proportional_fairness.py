"""Proportional fairness and partial allocation against closed forms, optimality conditions and liars."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.partial_allocation import PartialAllocation
from gavel.policies.proportional_fairness import ProportionalFairness
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds
from tests.policies.oracles import Oracle


def test_identical_jobs_hold_workers_by_weight_whatever_their_gangs() -> None:
    problem = a_problem([[2.0], [2.0], [7.0]], [2], weight=[1.0, 1.0, 2.0], scale_factor=[1, 2, 2])
    held = problem.scale_factor * ProportionalFairness().allocate(problem).time_fraction[:, 0]
    assert held == pytest.approx([0.5, 0.5, 1.0], abs=1e-5)


def test_two_jobs_with_opposite_tastes_each_get_their_own_type() -> None:
    problem = a_problem([[4.0, 1.0], [1.0, 4.0]], [1, 1])
    assert ProportionalFairness().allocate(problem).time_fraction == pytest.approx(np.eye(2), abs=1e-5)


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_no_valid_allocation_raises_the_sum_of_relative_gains(seed: int) -> None:
    """Optimality of a concave maximum: sum w_i (a_i(Y) - a_i(X)) / a_i(X) <= 0 for every valid Y, by another solver."""
    problem = an_instance(seed, jobs=2 + seed % 5, types=2 + seed % 2)
    oracle = Oracle(problem)
    allocation = ProportionalFairness().allocate(problem)
    rate = measures.effective_throughput(problem, allocation.time_fraction)
    able = oracle.equal > 0
    slope = np.where(able, problem.weight / np.where(able, rate, 1.0), 0.0)
    most = oracle.best((oracle.rates * slope[:, None]).ravel(), np.zeros(oracle.jobs))
    assert most == pytest.approx(problem.weight[able].sum(), rel=1e-4)
    assert allocation.certificate.dual_gap is None or allocation.certificate.dual_gap < 1e-6


def test_with_partial_allocation_two_equal_jobs_each_keep_half_of_their_half() -> None:
    problem = a_problem([[3.0], [5.0]], [1])
    assert PartialAllocation().allocate(problem).time_fraction[:, 0] == pytest.approx([0.25, 0.25], abs=1e-6)


def test_jobs_that_cost_nobody_anything_keep_all() -> None:
    problem = a_problem([[4.0, 1.0], [1.0, 4.0]], [1, 1])
    assert PartialAllocation().allocate(problem).time_fraction == pytest.approx(np.eye(2), abs=1e-5)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_each_job_keeps_at_least_one_part_in_e_of_what_is_proportionally_fair(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 4, types=2)
    fair, partial = (
        measures.effective_throughput(problem, policy.allocate(problem).time_fraction)
        for policy in (ProportionalFairness(), PartialAllocation())
    )
    assert (partial >= fair / np.e - 1e-5).all()
    assert (partial <= fair + 1e-5).all()


@pytest.mark.parametrize("seed", seeds(5, 100))
def test_no_lie_about_throughput_makes_a_job_faster(seed: int) -> None:
    problem = an_instance(seed, jobs=4, types=3)
    draw = np.random.default_rng(seed)
    honest = measures.relative_throughput(problem, PartialAllocation().allocate(problem).time_fraction)
    for liar in range(4):
        stated = problem.throughput_steps_per_s.copy()
        stated[liar, 0] *= draw.uniform(0.1, 5.0, 3)
        answer = PartialAllocation().allocate(replace(problem, throughput_steps_per_s=stated))
        assert measures.relative_throughput(problem, answer.time_fraction)[liar] <= honest[liar] + 1e-4
