"""The steps of the assignment by themselves, and what holds for pairs of jobs and for equal gangs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from gavel.mechanism.planning import assignment
from gavel.mechanism.planning.assignment import assign
from gavel.types import FloatArray, IntArray
from tests.conftest import IS_FULL
from tests.mechanism.test_assignment import alone, drawn, value

GAINS = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0]), st.sampled_from([1, 2, 4])),
    min_size=1,
    max_size=12,
)


def assigned(worth: list[list[float]], size: list[int], free: list[int]) -> list[int]:
    """The columns of gangs of different jobs."""
    columns: list[int] = assign(np.array(worth), np.array(size), np.array(free), alone(len(worth))).tolist()
    return columns


# --- prices -----------------------------------------------------------------------------------------------------


@given(gangs=GAINS, free=st.integers(0, 12), is_of_one_size=st.booleans())
def test_the_price_is_the_least_above_which_no_more_workers_are_wanted_than_are_free(
    gangs: list[tuple[float, int]], free: int, is_of_one_size: bool
) -> None:
    gain = np.array([each for each, _ in gangs])
    size = np.array([gangs[0][1] if is_of_one_size else each for _, each in gangs])
    price = assignment._clearing_price(gain, size, free)
    assert price >= 0.0 and size[gain > price].sum() <= free
    assert price == 0.0 or size[gain >= price].sum() > free


@pytest.mark.parametrize(
    ("worth", "size", "free", "prices"),
    [
        ([[5.0], [3.0], [1.0]], [1, 1, 1], [2], [1.0]),
        ([[10.0], [3.0]], [2, 1], [2], [3.0]),
        ([[5.0, 4.0], [5.0, 1.0], [3.0, 2.5]], [1, 1, 1], [1, 1], [1.0, 0.0]),
        ([[0.5, 0.4], [0.5, 0.1], [0.3, 0.25]], [1, 1, 1], [1, 1], [0.1, 0.0]),
        ([[9.0, 8.0], [9.0, 8.0], [9.0, 8.0]], [1, 1, 1], [1, 1], [1.0, 0.0]),
    ],
    ids=["one type", "by worker", "a cheaper type", "small worths", "all are alike"],
)
def test_prices_are_such_that_each_type_has_just_enough_workers(
    worth: list[list[float]], size: list[int], free: list[int], prices: list[float]
) -> None:
    of_types = assignment._prices(np.array(worth), np.array(size), np.array(free))
    assert of_types.tolist() == pytest.approx(prices)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 3))
def test_at_its_price_no_more_workers_of_the_last_type_are_wanted_than_are_free(
    seed: int, rows: int, types: int
) -> None:
    """Its price is the last to be set, given all others."""
    worth, size, free = drawn(seed, rows, types, (1, 2, 4))
    prices = assignment._prices(worth, size, free)
    surplus = worth / size[:, None] - prices
    elsewhere = np.column_stack([surplus[:, :-1], np.zeros(rows)]).max(axis=1)
    assert size[surplus[:, -1] > elsewhere + 1e-12].sum() <= free[-1]


# --- the first answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worth", "size", "free", "prices", "expected"),
    [
        ([[3.0], [2.5]], [2, 1], [2], [0.0], [1, 0]),
        ([[3.0], [2.5]], [2, 1], [3], [0.0], [0, 0]),
        ([[3.0, 2.0]], [1], [1, 1], [2.0, 0.0], [1]),
        ([[9.0], [2.0], [1.0]], [4, 1, 1], [2], [0.0], [1, 0, 0]),
        ([[0.5, 0.0], [0.0, 0.25]], [1, 1], [1, 1], [0.0, 0.0], [0, 1]),
        ([[3.0, 1.0], [2.0, 1.5]], [1, 1], [1, 1], [0.0, 0.0], [0, 1]),
    ],
    ids=["per worker", "all that there is", "less the price", "a large one is skipped", "where they may", "once"],
)
def test_gangs_go_in_order_of_their_worth_less_the_price_each_if_it_fits(
    worth: list[list[float]], size: list[int], free: list[int], prices: list[float], expected: list[int]
) -> None:
    """The column after the last one is that of gangs without a type."""
    given_to = assignment._greedy(np.array(worth), np.array(size), np.array(free), alone(len(worth)), np.array(prices))
    assert given_to.tolist() == expected


def test_each_job_goes_in_one_row_at_most() -> None:
    jobs = np.array([[0, 1], [0, 0], [1, 1], [2, 2], [3, 2], [3, 3]])
    worth = np.array([[6.0], [5.0], [4.0], [3.0], [2.0], [1.0]])
    first = assignment._greedy(worth, np.ones(6, dtype=np.int64), np.array([9]), jobs, np.zeros(1))
    assert first.tolist() == [0, 1, 1, 0, 1, 0]


def test_of_equal_gangs_the_first_ones_go_and_the_first_ones_make_room() -> None:
    """Also where there are so many that a sort could mix them."""
    assert assigned([[1.0]] * 100, [1] * 100, [30]) == [0] * 30 + [-1] * 70
    small = [[1.0], [2.0], [3.0]] * 100
    assert assigned(small, [1] * 300, [110]) == [-1, 0, 0] * 10 + [-1, -1, 0] * 90
    assert assigned([*small, [19.0]], [1] * 300 + [20], [310]) == [-1, 0, 0] * 10 + [0] * 271


# --- exchanges and room -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worth", "size", "free", "expected"),
    [
        ([[3.0, 2.9], [2.0, 0.0]], [1, 1], [1, 1], [1, 0]),
        ([[3.0, 2.0, 0.0], [3.5, 1.0, 0.0]], [1, 1], [1, 1, 1], [1, 0]),
        ([[1.4], [3.0], [3.8]], [1, 3, 4], [5], [0, -1, 0]),
        ([[1.1, 0.0], [0.0, 1.1], [4.0, 0.0], [0.0, 4.0]], [1, 1, 4, 4], [4, 4], [-1, -1, 0, 1]),
        ([[3.3], [5.0], [0.5]], [3, 5, 1], [6], [-1, 0, 0]),
    ],
    ids=[
        "one moves to the last free worker",
        "a type that nobody is on",
        "the least worth per worker makes room",
        "room is made on each type",
        "who made room comes back where there is some left",
    ],
)
def test_gangs_move_and_make_room_for_a_larger_worth(
    worth: list[list[float]], size: list[int], free: list[int], expected: list[int]
) -> None:
    assert assigned(worth, size, free) == expected


def test_a_gang_that_waits_takes_the_place_of_a_pair_through_a_third_one() -> None:
    """Of the pair's jobs, each alone is worth nothing; two other jobs run alone."""
    jobs = np.array([[0, 1], [2, 2], [3, 3]])
    worth = np.array([[0.1, 0.1], [3.0, 2.9], [2.0, 0.0]])
    assert assign(worth, np.ones(3, dtype=np.int64), np.array([1, 1]), jobs).tolist() == [-1, 1, 0]


@settings(max_examples=200 if IS_FULL else 40)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 4))
def test_the_unit_of_worth_does_not_matter(seed: int, rows: int, types: int) -> None:
    worth, size, free = drawn(seed, rows, types, (1, 2, 4))
    scaled = assign(1024.0 * worth, size, free, alone(rows))
    assert scaled.tolist() == assign(worth, size, free, alone(rows)).tolist()


@settings(max_examples=200 if IS_FULL else 40)
@given(st.integers(0, 2**32), st.integers(2, 6), st.booleans())
def test_jobs_alone_and_in_pairs_come_near_the_integer_optimum(seed: int, count: int, is_paired_only: bool) -> None:
    """No job is in two rows, no type has too many, and whoever could still go does."""
    draw, jobs = np.random.default_rng(seed), _rows(count, is_paired_only)
    size = np.full(len(jobs), draw.choice([1, 2]))
    worth = np.where(draw.random((len(jobs), 2)) < 0.3, 0.0, draw.random((len(jobs), 2)) * 3)
    free = draw.integers(0, 2 * count, 2)
    column = assign(worth, size, free, jobs)
    there = np.flatnonzero(column >= 0)
    served = [job for row in there for job in {*jobs[row].tolist()}]
    left = free - np.bincount(column[there], weights=size[there], minlength=2)
    assert len(served) == len({*served}) and (left >= 0).all() and (worth[there, column[there]] > 0).all()
    for row in np.flatnonzero(column < 0):
        could = (worth[row] > 0) & (left >= size[row])
        assert {*jobs[row].tolist()} & {*served} or not could.any()
    assert value(worth, column) >= _optimum(worth, size, free, jobs) / 2 - 1e-9


def _rows(count: int, is_paired_only: bool) -> IntArray:
    pairs = list(combinations(range(count), 2))
    return np.array(pairs if is_paired_only else [*((job, job) for job in range(count)), *pairs])


def _optimum(worth: FloatArray, size: IntArray, free: IntArray, jobs: IntArray) -> float:
    rows, count = len(jobs), int(jobs.max()) + 1
    of_job = np.array([(jobs == job).any(axis=1) for job in range(count)], dtype=float)
    limits = np.vstack([np.kron(of_job, np.ones(2)), np.kron(size[None], np.eye(2))])
    most = milp(
        -worth.ravel(),
        constraints=LinearConstraint(limits, -np.inf, np.r_[np.ones(count), free]),
        integrality=np.ones(2 * rows),
        bounds=Bounds(0, (worth.ravel() > 0).astype(float)),
    )
    return float(-most.fun)
