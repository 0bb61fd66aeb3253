"""Rank-weighted relative speed: the weights against the optimal shares of heSRPT, and what they lead to."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gavel.policies import measures
from gavel.policies.rank_weighted_speed import RankWeightedSpeed
from gavel.policies.tiers.ranks import EVEN_WITH_ROOM, ROOM, even_part
from gavel.rank_weights import CONCAVITY, EVEN_PART, rank_weight
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import an_instance

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
lengths = st.lists(st.sampled_from([1.0, 2.0, 5.0, 5.5, 100.0, np.inf]), min_size=1, max_size=30)


def shares(weight: np.ndarray) -> np.ndarray:
    """The shares that weights of distinct lengths stand for, up to a factor."""
    v: np.ndarray = ((weight - EVEN_PART) / (1 - EVEN_PART)) ** (1 / (1 - CONCAVITY))
    return v


def test_two_jobs_share_as_hesrpt_divides_a_cluster() -> None:
    """theta of the longer one of two is (1/2)^(1/(1-q)): section 3 of the paper."""
    longer, shorter = shares(rank_weight(np.array([9.0, 4.0]), EVEN_PART))
    assert longer / (longer + shorter) == pytest.approx(0.5 ** (1 / (1 - CONCAVITY)))


@given(lengths=lengths, even=st.sampled_from([EVEN_PART, EVEN_WITH_ROOM]))
def test_weights_fall_with_the_length_and_are_one_in_the_mean(lengths: list[float], even: float) -> None:
    length = np.array(lengths)
    weight = rank_weight(length, even)
    assert weight.mean() == pytest.approx(1.0) and weight.min() >= even
    for one, other in zip(range(len(length)), range(1, len(length)), strict=False):
        if length[one] == length[other]:
            assert weight[one] == weight[other]
        else:
            assert (weight[one] > weight[other]) == (length[one] < length[other])


@given(lengths=lengths, seed=st.integers(0, 99))
def test_only_the_order_of_lengths_counts(lengths: list[float], seed: int) -> None:
    length = np.array(lengths)
    order = np.random.default_rng(seed).permutation(len(length))
    weight = rank_weight(length, EVEN_PART)
    assert weight[order] == pytest.approx(rank_weight(length[order], EVEN_PART))
    assert rank_weight(length * 7.0 + 3.0, EVEN_PART) == pytest.approx(weight)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12), workers=st.integers(4, 40))
def test_the_more_jobs_wait_the_more_their_order_counts(sizes: list[int], workers: int) -> None:
    """A job that can run nowhere makes nobody wait."""
    some = a_problem([[1.0]] * len(sizes), [workers], scale_factor=sizes)
    more = a_problem([[1.0]] * len(sizes) * 2, [workers], scale_factor=sizes * 2)
    stuck = a_problem([[1.0]] * len(sizes) + [[0.0]], [workers], scale_factor=[*sizes, 4])
    assert EVEN_PART <= even_part(more) <= even_part(some) == even_part(stuck) <= EVEN_WITH_ROOM
    assert (even_part(some) == EVEN_WITH_ROOM) == (sum(sizes) / workers <= ROOM)


def test_where_all_run_at_once_the_fast_workers_go_to_whom_they_help() -> None:
    """The slow type is two thirds as fast for the shorter job, a third for the longer; of equals the shorter wins."""
    rates, left = [[3.0, 2.0], [3.0, 1.0]], [300.0, 900.0]
    room = RankWeightedSpeed().allocate(a_problem(rates, [1, 2], steps_remaining=left)).time_fraction
    assert room.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    alike = RankWeightedSpeed().allocate(a_problem(rates[1:] * 2, [1, 2], steps_remaining=left)).time_fraction
    assert alike.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_shortest_job_has_the_worker_and_a_huge_weight_is_worth_it() -> None:
    problem = a_problem([[1.0]] * 3, [1], steps_remaining=[50.0, 10.0, 30.0], age_s=[0.0] * 3)
    speed = measures.relative_throughput(problem, RankWeightedSpeed().allocate(problem).time_fraction)
    assert speed.tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    weighted = a_problem([[1.0]] * 3, [1], steps_remaining=[50.0, 10.0, 30.0], weight=[9.0, 1.0, 1.0], age_s=[0.0] * 3)
    speed = measures.relative_throughput(weighted, RankWeightedSpeed().allocate(weighted).time_fraction)
    assert speed.tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def test_without_lengths_who_has_held_little_comes_first() -> None:
    """Attained service counts in levels: one accelerator hour is as much as two, and less than four."""
    hours = np.array([4.0, 1.1, 2.0, 100.0])
    problem = a_problem([[1.0]] * 4, [1], attained_service_s=(hours * 3600).tolist(), steps_remaining=[1, 9, 9, 9])
    claim = RankWeightedSpeed(length="attained_service").claim(problem)
    assert claim[1] == claim[2] > claim[0] > claim[3]


def isolated(problem: AllocationProblem) -> np.ndarray:
    rate: np.ndarray = measures.isolated_rate(problem, measures.even_share(problem))
    return rate


@given(seed=st.integers(0, 10_000), limit=st.sampled_from([1.01, 1.05, 1.5]))
@settings(max_examples=200 if IS_FULL else 15)
def test_late_jobs_are_at_least_as_fast_as_isolated(seed: int, limit: float) -> None:
    """Late: rho is at the limit even with the isolated rate from now on. By prices, by the program, with pairs."""
    problem, policy = an_instance(seed, jobs=3 + seed % 30, types=1 + seed % 4), RankWeightedSpeed(rho_limit=limit)
    left_s = np.maximum(1.0, problem.steps_remaining) / np.where(isolated(problem) > 0, isolated(problem), np.inf)
    rho = (problem.age_s + left_s) / (problem.isolated_time_s + left_s)
    late = (rho >= limit * (1 + 1e-9)) & (isolated(problem) > 0)
    for allocation in (policy.allocate(problem), policy.program(problem)):
        rate = measures.effective_throughput(problem, allocation.time_fraction)
        assert (rate[late] >= isolated(problem)[late] * (1 - 1e-5)).all()


kinds = st.sampled_from([(2.0, 1.0), (1.0, 1.0), (9.0, 1.0), (0.0, 3.0)])
arrivals = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60), kinds), min_size=1, max_size=10)


@given(stream=arrivals, limit=st.sampled_from([1.05, 1.3]), gangs=st.integers(1, 2))
@settings(max_examples=300 if IS_FULL else 8, deadline=None)
@example(stream=[(0, 60, (9.0, 1.0))] + [(turn, 9, (9.0, 1.0)) for turn in range(11)], limit=1.05, gangs=1)
def test_no_job_falls_further_behind_its_isolated_share_than_the_bound(
    stream: list[tuple[int, int, tuple[float, float]]], limit: float, gangs: int
) -> None:
    """age - t <= (limit - 1) max (t + R / T_iso), and the length of one step of this simulation besides."""
    policy, step_s = RankWeightedSpeed(rho_limit=limit), 1.0
    count = len(stream)
    rates = np.array([each[2] for each in stream])
    left, isolated_s = np.array([float(each[1]) for each in stream]), np.zeros(count)
    age_s, longest_s = np.zeros(count), np.zeros(count)
    for turn in range(60):
        jobs = np.flatnonzero((np.array([each[0] for each in stream]) <= turn) & (left > 0))
        if not len(jobs):
            continue
        problem = a_problem(
            rates[jobs].tolist(),
            [2, 1],
            steps_remaining=left[jobs],
            age_s=age_s[jobs],
            isolated_time_s=isolated_s[jobs],
            scale_factor=np.full(len(jobs), gangs if rates[jobs, 0].all() else 1),
        )
        total_s = measures.isolated_finish_s(problem, measures.even_share(problem))
        longest_s[jobs] = np.maximum(longest_s[jobs], total_s)
        rate = measures.effective_throughput(problem, policy.allocate(problem).time_fraction)
        left[jobs] -= rate * step_s
        isolated_s[jobs] += rate / isolated(problem) * step_s
        age_s[jobs] += step_s
        behind_s = age_s[jobs] - isolated_s[jobs]
        assert (behind_s <= (limit - 1) * longest_s[jobs] + step_s + 1e-3).all()


def test_a_length_that_is_not_sure_is_taken_to_be_nearer_to_the_others() -> None:
    """Three said lengths with mean 0 and variance 2/3 in logarithms; the error of the last is as large as that."""
    stated = np.exp(np.array([-1.0, 0.0, 1.0]))
    expected = measures.expected_length(stated, np.array([0.0, 0.0, np.sqrt(2 / 3)]))
    assert np.log(expected) == pytest.approx([-1.0, 0.0, 0.5])
    assert (measures.expected_length(stated, np.zeros(0)) == stated).all()
    lost = measures.expected_length(np.append(stated, np.inf), np.array([1e9, 0.0, 0.0, 1.0]))
    assert np.log(lost[0]) == pytest.approx(0.0, abs=1e-6) and lost[3] == np.inf


@given(stated=st.lists(st.floats(1.0, 1e9), min_size=1, max_size=20), error=st.floats(0.0, 5.0))
def test_lengths_that_are_equally_sure_keep_their_order(stated: list[float], error: float) -> None:
    lengths = np.array(stated)
    expected = measures.expected_length(lengths, np.full(len(stated), error))
    assert (np.diff(expected[np.argsort(lengths, kind="stable")]) >= -1e-9 * lengths.max()).all()


def test_weighted_by_precision_lengths_are_less_wrong_in_the_mean() -> None:
    """Of lengths that are wrong by e^N(0, their error), against what is said taken at its word."""
    draw = np.random.default_rng(3)
    true, error = draw.normal(8.0, 1.0, 4000), draw.uniform(0.0, 2.0, 4000)
    stated = true + error * draw.standard_normal(4000)
    expected = np.log(measures.expected_length(np.exp(stated), error))
    assert ((expected - true) ** 2).mean() < 0.6 * ((stated - true) ** 2).mean()


def test_a_job_of_unsure_length_goes_before_one_that_is_surely_long_and_after_one_that_is_surely_short() -> None:
    problem = a_problem([[1.0]] * 3, [1], steps_remaining=[100.0, 10.0, 1000.0], age_s=np.zeros(3))
    unsure_short = replace(
        problem, steps_remaining=np.array([100.0, 5.0, 10_000.0]), length_error=np.array([0, 9.0, 0])
    )
    assert RankWeightedSpeed().allocate(problem).time_fraction[1, 0] == 1.0
    assert RankWeightedSpeed().allocate(unsure_short).time_fraction[0, 0] == 1.0
