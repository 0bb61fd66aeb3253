"""Rank-weighted relative speed: the weights against the optimal shares of heSRPT, and what they lead to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures
from gavel.policies.rank_weighted_speed import CONCAVITY, EVEN_PART, RankWeightedSpeed, rank_weight
from tests.builders import a_problem

lengths = st.lists(st.sampled_from([1.0, 2.0, 5.0, 5.5, 100.0, np.inf]), min_size=1, max_size=30)


def shares(weight: np.ndarray) -> np.ndarray:
    """The shares that weights of distinct lengths stand for, up to a factor."""
    v: np.ndarray = ((weight - EVEN_PART) / (1 - EVEN_PART)) ** (1 / (1 - CONCAVITY))
    return v


def test_two_jobs_share_as_hesrpt_divides_a_cluster() -> None:
    """theta of the longer one of two is (1/2)^(1/(1-q)): section 3 of the paper."""
    longer, shorter = shares(rank_weight(np.array([9.0, 4.0])))
    assert longer / (longer + shorter) == pytest.approx(0.5 ** (1 / (1 - CONCAVITY)))


@given(lengths=lengths)
def test_weights_fall_with_the_length_and_are_one_in_the_mean(lengths: list[float]) -> None:
    length = np.array(lengths)
    weight = rank_weight(length)
    assert weight.mean() == pytest.approx(1.0) and weight.min() >= EVEN_PART
    for one, other in zip(range(len(length)), range(1, len(length)), strict=False):
        if length[one] == length[other]:
            assert weight[one] == weight[other]
        else:
            assert (weight[one] > weight[other]) == (length[one] < length[other])


@given(lengths=lengths, seed=st.integers(0, 99))
def test_only_the_order_of_lengths_counts(lengths: list[float], seed: int) -> None:
    length = np.array(lengths)
    order = np.random.default_rng(seed).permutation(len(length))
    assert rank_weight(length)[order] == pytest.approx(rank_weight(length[order]))
    assert rank_weight(length * 7.0 + 3.0) == pytest.approx(rank_weight(length))


def test_the_shortest_job_has_the_worker_and_a_huge_weight_is_worth_it() -> None:
    problem = a_problem([[1.0]] * 3, [1], steps_remaining=[50.0, 10.0, 30.0])
    speed = measures.relative_throughput(problem, RankWeightedSpeed().allocate(problem).time_fraction)
    assert speed.tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    weighted = a_problem([[1.0]] * 3, [1], steps_remaining=[50.0, 10.0, 30.0], weight=[9.0, 1.0, 1.0])
    speed = measures.relative_throughput(weighted, RankWeightedSpeed().allocate(weighted).time_fraction)
    assert speed.tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def test_without_lengths_who_has_held_little_comes_first() -> None:
    """Attained service counts in levels: one accelerator hour is as much as two, and less than four."""
    hours = np.array([4.0, 1.1, 2.0, 100.0])
    problem = a_problem([[1.0]] * 4, [1], attained_service_s=(hours * 3600).tolist(), steps_remaining=[1, 9, 9, 9])
    claim = RankWeightedSpeed(length="attained_service").claim(problem)
    assert claim[1] == claim[2] > claim[0] > claim[3]
