"""The isolated speed of an elastic job: what it can make of a slice of the cluster by its choice of type and size."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from gavel.finish_time import isolated_rate
from gavel.policies import measures, registry
from gavel.policies.conformance import a_small_problem
from gavel.policies.tiers.ranks import rate_of_late
from gavel.types import Configurations, FloatArray, IntArray
from tests.conftest import IS_FULL

SIZES = np.array([1, 2, 3, 4, 8])


def by_program(speed: FloatArray, sizes: IntArray, workers: IntArray, share: float) -> float:
    """The definition: speed (m, k)."""
    types, count = speed.shape
    usable = np.where(sizes <= workers[:, None], speed, 0.0)
    held = np.kron(np.eye(types), sizes)
    rows, most = np.vstack([np.ones(types * count), held]), np.append(1.0, share * workers)
    return -float(linprog(-usable.ravel(), A_ub=rows, b_ub=most, bounds=(0, None)).fun)


def over_sizes(speed: FloatArray, sizes: IntArray, workers: IntArray, share: FloatArray) -> FloatArray:
    count, types = speed.shape[:2]
    choice = Configurations(jobs=np.arange(count), sizes=sizes, steps_per_s=speed)
    return isolated_rate(np.zeros((count, types)), workers, np.ones(count, dtype=np.int64), share, choice)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 9))
def test_it_is_what_the_linear_program_says(seed: int, types: int, sizes: int, competing: int) -> None:
    draw = np.random.default_rng(seed)
    speed = draw.uniform(0.1, 3.0, (4, types, sizes)) * (draw.random((4, types, sizes)) < 0.8)
    if seed % 2:
        speed = np.round(speed)  # equal speeds, and sizes that gain nothing
    workers, share = draw.integers(0, 12, types), np.full(4, 1 / competing)
    expected = [by_program(each, SIZES[:sizes], workers, 1 / competing) for each in speed]
    assert over_sizes(speed, SIZES[:sizes], workers, share) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_it_is_at_least_that_of_a_rigid_job_of_each_size_and_more_sizes_never_lower_it(
    seed: int, competing: int
) -> None:
    draw = np.random.default_rng(seed)
    speed, workers = draw.uniform(0.0, 3.0, (1, 3, 5)), draw.integers(1, 12, 3)
    share = np.array([1 / competing])
    whole = over_sizes(speed, SIZES, workers, share)[0]
    for place, size in enumerate(SIZES.tolist()):
        rates = np.where(size <= workers, speed[:, :, place], 0.0)
        assert isolated_rate(rates, workers, np.array([size]), share)[0] <= whole * (1 + 1e-12)
        fewer = np.delete(speed, place, axis=2)
        assert over_sizes(fewer, np.delete(SIZES, place), workers, share)[0] <= whole * (1 + 1e-12)


def test_rigid_jobs_of_a_problem_keep_theirs_and_service_counts_from_it() -> None:
    problem = a_small_problem()
    share, before = measures.even_share(problem), measures.isolated_rate(problem, measures.even_share(problem))
    speed = problem.throughput_steps_per_s[[1, 4], 0][:, :, None] * np.array([1.0, 1.9])
    choice = Configurations(jobs=np.array([1, 4]), sizes=np.array([1, 2]), steps_per_s=speed)
    elastic = replace(problem, configurations=choice)
    after = measures.isolated_rate(elastic, share)
    assert after[[0, 2, 3, 5]].tolist() == before[[0, 2, 3, 5]].tolist()
    assert (after[[1, 4]] > 0).all()
    even_part = problem.capacity_workers.sum() / len(problem.job_ids)
    service = measures.service_per_step(elastic) * after
    assert service[[1, 4]] == pytest.approx(even_part)
    assert (measures.service_per_step(elastic) == measures.service_per_step(problem))[[0, 2, 3, 5]].all()


@settings(max_examples=200 if IS_FULL else 25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["rank_weighted_speed", "hierarchical", "max_min_fairness"]))
def test_late_jobs_that_come_in_one_size_have_what_there_is_room_for(seed: int, name: str) -> None:
    """As the service asks: sizes were chosen, and the isolated speed is that over all of them."""
    draw, jobs = np.random.default_rng(seed), 8
    problem = a_small_problem(seed, jobs=jobs)
    elastic = np.flatnonzero(draw.random(jobs) < 0.7)
    sizes, capacity = np.array([1, 2, 4]), draw.integers(1, 6, 3)
    growth = sizes ** draw.uniform(0.3, 1.0, (len(elastic), 3, 1))
    speed = problem.throughput_steps_per_s[elastic, 0][:, :, None] * growth
    place = draw.integers(0, 3, len(elastic))
    in_force, rates = problem.scale_factor.copy(), problem.throughput_steps_per_s.copy()
    in_force[elastic], rates[elastic, 0] = sizes[place], speed[np.arange(len(elastic)), :, place]
    choice = Configurations(jobs=elastic, sizes=sizes, steps_per_s=speed)
    asked = replace(
        problem,
        scale_factor=in_force,
        throughput_steps_per_s=rates,
        capacity_workers=capacity,
        configurations=choice,
        age_s=draw.choice([10.0, 1e5, 1e6], jobs),
    )
    least = rate_of_late(asked)
    assert (least <= measures.isolated_rate(asked, measures.even_share(asked)) * (1 + 1e-9)).all()
    answer = registry.load(name).allocate(asked)
    assert measures.violation(asked, answer.time_fraction) <= 1e-6
    if name == "rank_weighted_speed":
        assert (measures.effective_throughput(asked, answer.time_fraction) >= least * (1 - 1e-6)).all()
