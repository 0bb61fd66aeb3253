"""The numbers that rounds are chosen by: lags and their limits, urgency, and the orders of the published rule."""

from typing import Any

import numpy as np
import pytest

from gavel.mechanism.planning.priority import accrue, claims_published, fastest_first, limits, shuffled, urgency


def test_lags_grow_by_the_target_fractions_and_are_cut_on_both_sides() -> None:
    """At the limit of each job and type above, and at three rounds and what a gang may stay beyond its lag below."""
    lag, target = np.array([[0.5, 2.9], [-2.9, -9.0]]), np.array([[0.25, 0.5], [0.5, 0.0]])
    limit = np.array([[9.0, 3.0], [9.0, 9.0]])
    assert accrue(lag, target, limit).tolist() == [[0.75, 3.0], [pytest.approx(-2.4), -3.0]]
    assert accrue(lag, target, limit, beyond_rounds=1.5).tolist() == [[0.75, 3.0], [pytest.approx(-2.4), -4.5]]


@pytest.mark.parametrize(
    ("sizes", "kept", "beyond", "expected"),
    [
        ([1, 2, 4], [-1, -1, -1], 0.0, [[6.1, 3.1], [3 * 2**0.5 + 0.1, 3.1], [3.1, 3.1]]),
        ([1, 2, 4], [0, 1, -1], 0.0, [[3.0, 3.1], [3 * 2**0.5 + 0.1, 3.0], [3.1, 3.1]]),
        ([1, 2, 4], [0, 1, -1], 1.5, [[4.5, 6.1], [6 * 2**0.5 + 0.1, 4.5], [6.1, 6.1]]),
        ([1, 1], [-1, 0], 0.0, [[3.1, 3.1], [3.0, 3.1]]),
        ([2, 2], [-1, 0], 0.0, [[3 * 1.5**0.5 + 0.1, 3.1], [3.0, 3.1]]),
        ([], [], 0.0, []),
    ],
    ids=["all wait", "two run", "two run and may stay", "single workers", "of one size", "no jobs"],
)
def test_a_gang_that_waits_may_lag_further_than_those_together_that_have_to_go_for_it(
    sizes: list[int], kept: list[int], beyond: float, expected: Any
) -> None:
    """On four workers of one type and one of another; those that go are the largest gang and one worker too few."""
    arrays = np.array(sizes, dtype=np.int64), np.array(kept, dtype=np.int64), np.array([4, 1])
    assert limits(*arrays, beyond_rounds=beyond).tolist() == [pytest.approx(row) for row in expected]
    assert limits(*arrays).tolist() == limits(*arrays, beyond_rounds=0.0).tolist()


def test_urgency_is_the_square_of_the_claim_and_favours_who_is_there_and_then_who_was_first() -> None:
    claims = np.array([[2.0, -1.0], [2.0, 0.0], [2.0, 1.0]])
    apart = [[0.0, 0.0], [2**0.5 - 1, 3**0.5 - 1], [2 * 2**0.5 - 2, 2 * 3**0.5 - 3]]
    step = 1e-3 / 3
    least = [
        [2.0 + step * 3, step * 3],
        [2.0 + step * (2 + apart[1][0] / 2), step * (2 + apart[1][1] / 2)],
        [2.0 + step * (1 + apart[2][0] / 2), 1.0 + step * (1 + apart[2][1] / 2) + 0.01],
    ]
    expected = [[pytest.approx(value**2, rel=1e-9) for value in row] for row in least]
    assert urgency(claims, np.array([-1, -1, 1])).tolist() == expected
    assert urgency(np.zeros((0, 2)), np.zeros(0, dtype=np.int64)).shape == (0, 2)


def test_a_single_job_has_an_urgency_on_each_type() -> None:
    assert urgency(np.array([[1.0, 0.0]]), np.array([0])).tolist() == [[pytest.approx(1.011**2), pytest.approx(1e-6)]]


def test_types_come_in_the_given_order_each_with_the_jobs_that_it_can_run_by_what_they_have_had_of_it() -> None:
    """Equal ratios are ordered by the fraction, and equal fractions by arrival."""
    target = np.array([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.25]])
    received = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    usable = np.array([[True, True], [True, True], [True, False], [True, True]])
    assert list(claims_published(target, received, usable, [1, 0])) == [(1, [1, 0, 3]), (0, [3, 2, 0, 1])]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([[1.0, 2.0, 4.0], [2.0, 1.0, 1.0]], [2, 0, 1]),
        ([[100.0, 50.0], [1.0, 4.0], [1.0, 4.0]], [1, 0]),
        ([[0.1, 0.4], [9.0, 4.5]], [1, 0]),
        ([[0.0, 0.0], [0.0, 0.1]], [1, 0]),
        ([[1.0, 1.0], [1.0, 1.0]], [0, 1]),
        ([[0.0, 0.0]], [0, 1]),
        ([[]], []),
    ],
    ids=["mean", "relative", "slow", "one runs nowhere", "all alike", "nobody runs anywhere", "no types"],
)
def test_the_fastest_type_is_the_one_with_the_largest_mean_of_relative_speeds(
    rates: list[list[float]], expected: list[int]
) -> None:
    assert fastest_first(np.array(rates)) == expected


def test_many_types_that_are_alike_stay_in_their_order() -> None:
    assert fastest_first(np.tile([1.0, 2.0], (1, 30))) == [*range(1, 60, 2), *range(0, 60, 2)]


def test_the_shuffled_order_of_a_round_is_the_same_in_every_release_so_that_stored_rounds_can_be_verified() -> None:
    columns = [0, 1, 2, 3]
    orders = ["".join(map(str, shuffled(columns, index))) for index in (0, 1, 2, 3, 4, 10**9)]
    assert orders == ["0123", "1023", "2301", "3201", "0321", "0312"]
    assert columns == [0, 1, 2, 3]
