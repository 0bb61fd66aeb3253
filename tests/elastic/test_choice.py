"""The choice by prices against the program that defines it, and the best whole choice of small problems."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from gavel.elastic.decision import choose
from gavel.elastic.prices import balanced
from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.policies.programs.elastic import relaxed
from tests.elastic.instances import elastic_jobs, size_problem


def best_whole(problem: SizeProblem) -> float:
    """The best choice of whole gangs, by branch and bound."""
    jobs, columns = problem.flat.shape
    once = np.kron(np.eye(jobs), np.ones(columns))
    types = len(problem.capacity_workers)
    held = np.tile(np.eye(types)[:, problem.type_of] * problem.workers, jobs)
    limits = [LinearConstraint(once, ub=1), LinearConstraint(held, ub=problem.capacity_workers)]
    answer = milp(-problem.flat.ravel(), constraints=limits, integrality=1, bounds=Bounds(0, 1))
    return float(-answer.fun)


problems = st.builds(
    lambda seed, count, workers: size_problem(elastic_jobs(seed, count, types=len(workers)), tuple(workers)),
    st.integers(0, 10**6),
    st.integers(0, 40),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
)


@given(problems)
def test_no_choice_is_over_capacity_or_where_a_job_cannot_run(problem: SizeProblem) -> None:
    choice = choose(problem)
    given_ = np.flatnonzero(choice.configuration != NOTHING)
    assert len(choice.configuration) == len(problem.flat)
    assert (problem.held(choice.configuration) <= problem.capacity_workers).all()
    assert (problem.flat[given_, choice.configuration[given_]] > 0).all()
    assert choice.value == pytest.approx(problem.value(choice.configuration))
    assert choice.value <= choice.bound * (1 + 1e-9)


@given(problems)
def test_the_bound_holds_for_the_program_and_is_near_it(problem: SizeProblem) -> None:
    _, best = relaxed(problem)
    assert best * (1 - 1e-6) <= balanced(problem)[0].bound <= best * 1.02 + 1e-9
    assert choose(problem).bound <= best * 1.02 + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_small_problems_are_near_the_best_whole_choice(seed: int) -> None:
    problem = size_problem(elastic_jobs(seed, 12), (8, 6, 4))
    best, choice = best_whole(problem), choose(problem)
    assert choice.bound >= best * (1 - 1e-6)
    assert best >= choice.value * (1 - 1e-6)
    assert choice.value >= 0.998 * best  # what is left over of a few workers weighs most here
    assert choice.gap < 0.005


@pytest.mark.parametrize(
    ("jobs", "workers"), [(1000, (768, 768, 512)), (4000, (2048, 2048, 2048)), (200, (512, 64, 8))]
)
def test_the_gap_of_large_problems_is_under_half_a_percent(jobs: int, workers: tuple[int, ...]) -> None:
    assert choose(size_problem(elastic_jobs(1, jobs), workers)).gap < 0.005


def test_more_workers_than_anybody_wants_are_left_free() -> None:
    problem = size_problem(elastic_jobs(3, 5), (500, 500, 500))
    choice = choose(problem)
    assert choice.value == pytest.approx(problem.flat.max(axis=1).sum()) and choice.gap < 1e-9


def test_the_same_problem_has_the_same_choice() -> None:
    problem = size_problem(elastic_jobs(4, 50), (16, 16, 16))
    assert (choose(problem).configuration == choose(problem).configuration).all()


def test_without_workers_of_any_type_no_job_is_given_any() -> None:
    problem = SizeProblem(utility=np.zeros((3, 0, 2)), sizes=np.array([1, 2]), capacity_workers=np.zeros(0, dtype=int))
    assert choose(problem).configuration.tolist() == [NOTHING] * 3
