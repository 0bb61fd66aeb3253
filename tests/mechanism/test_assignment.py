"""The assignment against independent solvers: matching for gangs of one size, an integer program for the rest."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

from gavel.mechanism.planning import assignment
from gavel.mechanism.planning.assignment import assign
from gavel.types import FloatArray, IntArray

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def alone(rows: int) -> IntArray:
    return np.repeat(np.arange(rows), 2).reshape(-1, 2)


def value(worth: FloatArray, column: IntArray) -> float:
    rows = np.flatnonzero(column >= 0)
    return float(worth[rows, column[rows]].sum())


def drawn(seed: int, rows: int, types: int, sizes: tuple[int, ...] = (1,)) -> tuple[FloatArray, IntArray, IntArray]:
    draw = np.random.default_rng(seed)
    worth = np.where(draw.random((rows, types)) < 0.3, 0.0, draw.random((rows, types)) ** 2)
    return worth, draw.choice(sizes, rows), draw.integers(0, 1 + rows * 2 // types, types)


@settings(max_examples=400 if FULL else 60)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 4))
def test_gangs_of_one_size_are_assigned_for_the_largest_worth_there_is(seed: int, rows: int, types: int) -> None:
    worth, size, free = drawn(seed, rows, types)
    columns = np.repeat(np.arange(types), free)
    best = worth[:, columns][linear_sum_assignment(worth[:, columns], maximize=True)].sum()
    assert value(worth, assign(worth, size, free, alone(rows))) == pytest.approx(best)


@pytest.mark.parametrize("kinds", [0, 5], ids=["all unlike", "five kinds"])
def test_prices_lead_many_rows_to_the_same_worth(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worth, size, free = drawn(1, 1_200, 3)
    if kinds:
        worth = worth[np.arange(1_200) % kinds] * (1 + np.random.default_rng(2).random((1_200, 3)) * 1e-5)
    priced = value(worth, assign(worth, size, free // 2, alone(1_200)))
    monkeypatch.setattr(assignment, "PRICED_ROWS", 10_000)
    assert priced == pytest.approx(value(worth, assign(worth, size, free // 2, alone(1_200))))


@settings(max_examples=400 if FULL else 60)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4), st.booleans())
def test_sorted_moves_lead_to_the_very_same_assignment(seed: int, rows: int, types: int, has_equals: bool) -> None:
    """As a look at all rows at each exchange does: equal costs, several sizes, and gangs that come back included."""
    worth, size, free = drawn(seed, rows, types, (1, 2, 4))
    worth = np.ceil(4 * worth) if has_equals else worth
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "SORTED_ROWS", 0)
        by_sorting = assign(worth, size, free, alone(rows))
    assert by_sorting.tolist() == assign(worth, size, free, alone(rows)).tolist()


@settings(max_examples=200 if FULL else 30)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_gangs_of_several_sizes_fit_and_come_near_the_integer_optimum(seed: int, rows: int) -> None:
    worth, size, free = drawn(seed, rows, 2, (1, 2, 4))
    worth = worth * size[:, None]
    column = assign(worth, size, free, alone(rows))
    used = np.bincount(column[column >= 0], weights=size[column >= 0], minlength=2)
    assert (used <= free).all() and (worth[column >= 0, column[column >= 0]] > 0).all()
    for row in np.flatnonzero(column < 0):
        assert not ((worth[row] > 0) & (free - used >= size[row])).any()
    limits = np.vstack([np.kron(np.eye(rows), np.ones(2)), np.kron(size[None], np.eye(2))])
    most = milp(
        -worth.ravel(),
        constraints=LinearConstraint(limits, -np.inf, np.r_[np.ones(rows), free]),
        integrality=np.ones(2 * rows),
        bounds=Bounds(0, (worth.ravel() > 0).astype(float)),
    )
    assert -most.fun / 2 <= value(worth, column) <= -most.fun * 1.001 + 1e-9  # the solver's own gap is 1e-4


def test_a_large_gang_goes_in_over_small_ones_that_are_worth_less_together() -> None:
    """Per worker the gang of one is worth most, but beside it no gang of four fits."""
    worth, size = np.array([[1.1], [4.0], [0.9]]), np.array([1, 4, 1])
    assert assign(worth, size, np.array([4]), alone(3)).tolist() == [-1, 0, -1]
    assert assign(worth, size, np.array([5]), alone(3)).tolist() == [0, 0, -1]


def test_a_job_runs_alone_or_in_one_pair_and_the_pair_goes_first_where_it_is_worth_more() -> None:
    jobs = np.array([[0, 0], [1, 1], [2, 2], [0, 1], [1, 2]])
    worth = np.array([[1.0], [1.0], [1.0], [2.0], [1.9]])
    size = np.ones(5, dtype=np.int64)
    assert assign(worth, size, np.array([1]), jobs).tolist() == [-1, -1, -1, 0, -1]
    assert assign(worth, size, np.array([2]), jobs).tolist() == [-1, -1, 0, 0, -1]
    assert assign(worth, size, np.array([2]), jobs[:, ::-1]).tolist() == [-1, -1, 0, 0, -1]
    apart = np.array([[3.0], [1.0], [3.0], [2.0], [1.9]])
    assert assign(apart, size, np.array([5]), jobs[:, ::-1]).tolist() == [0, 0, 0, -1, -1]


def test_no_worker_or_no_claim_gives_nothing() -> None:
    one = np.ones(1, dtype=np.int64)
    assert assign(np.ones((1, 1)), one, np.array([0]), alone(1)).tolist() == [-1]
    assert assign(np.zeros((1, 1)), one, np.array([3]), alone(1)).tolist() == [-1]
