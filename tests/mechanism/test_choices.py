"""Who is chosen for a round and what it is charged, compared whole: by pins, claims, pairs, and what is left."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.planning.selection import Choice, SelectionProblem, choose
from tests.mechanism.test_selection import a_packed_standing, a_selection

Outcome = tuple[dict[int, int], list[list[float]]]
"""The column of each row that goes, and the ledger after the round."""


def outcome(selection: SelectionProblem) -> Outcome:
    chosen, ledger = choose(selection)
    return chosen, ledger.round(3).tolist()


# --- who goes before whom -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "over", "expected"),
    [
        (0.5, {}, ({0: 0}, [[-1.0], [0.0], [0.0], [0.5], [0.0]])),
        (0.5, {"pinned": ()}, ({1: 0}, [[0.0], [-1.0], [0.0], [0.5], [0.0]])),
        (0.5, {"pinned": (), "late": ()}, ({2: 0}, [[0.0], [0.0], [0.0], [0.5], [0.0]])),
        (0.5, {"pinned": (), "late": (), "profiling": ()}, ({3: 0}, [[0.0], [0.0], [0.0], [-0.5], [0.0]])),
        (0.0, {"pinned": (), "late": (), "profiling": ()}, ({0: 0}, [[0.0], [0.0], [0.0], [0.0], [0.0]])),
    ],
    ids=["pinned", "late", "to be profiled", "with a claim", "the first that waits"],
)
def test_pinned_gangs_go_first_then_late_ones_then_what_nobody_measured_then_claims(
    claim: float, over: dict[str, Any], expected: Outcome
) -> None:
    """On one worker. A gang that is profiled, or takes what is left, is charged nothing that it had no claim to."""
    fields = {"kept": np.array([0, -1, -1, -1, -1]), "pinned": (0,), "late": ((1, 0),), "profiling": ((2, 0),)}
    assert outcome(a_selection([[0.0], [0.0], [0.0], [claim], [0.0]], [1], **(fields | over))) == expected


def test_a_gang_that_is_profiled_is_charged_what_it_lags() -> None:
    lagging = a_selection([[0.25, 0.0], [0.5, 0.5]], [1, 1], profiling=((0, 0),))
    assert outcome(lagging) == ({0: 0, 1: 1}, [[-0.75, 0.0], [0.5, -0.5]])


def test_a_gang_that_found_no_room_to_be_profiled_is_charged_for_the_place_that_it_claims() -> None:
    """Job 1 keeps its place of the second type, though it is ahead there, and gives the round back later."""
    selection = a_selection(
        [[0.0, 0.0], [0.0, 0.0]],
        [1, 1],
        kept=np.array([0, 1]),
        pinned=(0,),
        profiling=((1, 0),),
        stay_rounds=np.full(2, 1.0),
        ledger=np.array([[0.0, 0.0], [0.0, -0.5]]),
    )
    assert outcome(selection) == ({0: 0, 1: 1}, [[-1.0, 0.0], [0.0, -1.5]])


def test_nobody_gets_a_second_gang_and_no_gang_a_part_of_its_workers() -> None:
    sizes = np.array([2, 2, 1], dtype=np.int64)
    selection = a_selection([[0.9], [0.8], [0.1]], [3], scale_factor=sizes, late=((1, 0), (1, 0), (0, 0)))
    assert outcome(selection) == ({1: 0, 2: 0}, [[0.9], [-0.2], [-0.9]])


def test_the_type_of_a_pinned_pair_is_that_of_its_first_job() -> None:
    selection = a_packed_standing(
        [(0, 1)], [[0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [0, 1], kept=np.array([1, 1, -1]), pinned=(3,)
    )
    assert outcome(selection) == ({3: 1}, [[0.0, -1.0], [0.0, -1.0], [0.0, 1.0]])


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "stays"),
    [
        ({"minimum_rounds": 1.6}, True),
        ({"minimum_rounds": 1.2}, False),
        ({"stay_rounds": np.array([0.8, 0.0])}, True),
        ({"stay_rounds": np.array([0.6, 0.0])}, False),
        ({"stay_rounds": np.array([0.0, 9.0])}, False),
        ({"stay_rounds": np.array([0.8, 0.0]), "minimum_rounds": 0.1}, True),
        ({"stay_rounds": np.array([0.1, 0.0]), "minimum_rounds": 1.6}, True),
        ({"stay_rounds": np.array([0.4, 0.0]), "minimum_rounds": 0.8}, False),
    ],
)
def test_a_gang_keeps_its_place_if_its_claim_and_the_larger_of_the_two_prices_exceed_the_claim_of_another(
    over: dict[str, Any], stays: bool
) -> None:
    """Half of the minimum that a gang runs counts as a price; the other job lags by 0.7 of a round more."""
    selection = a_selection([[0.2], [0.9]], [1], kept=np.array([0, -1]), **over)
    assert outcome(selection) == (({0: 0}, [[-0.8], [0.9]]) if stays else ({1: 0}, [[0.2], [-0.1]]))


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, [[3.0], [2.1], [-3.0]]),
        ({"minimum_rounds": 2.0, "stay_rounds": np.array([1.5, 0.0, 0.0])}, [[6.5], [9.1], [-6.5]]),
    ],
)
def test_lags_are_cut_at_three_rounds_and_the_price_and_the_minimum_that_a_gang_may_stay(
    over: dict[str, Any], expected: list[list[float]]
) -> None:
    """A gang that waits may lag further than one that is there; one that runs ahead does so by no more, either."""
    selection = a_selection(
        np.zeros((3, 1)),
        [1],
        ledger=np.array([[99.0], [99.0], [-99.0]]),
        kept=np.array([0, -1, -1]),
        **over,
    )
    assert outcome(selection) == ({1: 0}, expected)


def test_a_gang_has_no_claim_where_it_cannot_run_nor_by_a_lag_that_is_a_rounding() -> None:
    rates = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    lag = np.array([[2.0, 0.0], [1e-9, 0.0], [2e-9, 0.0]])
    chosen, _ = choose(a_selection(np.zeros((3, 2)), [1, 0], rates=rates, ledger=lag))
    assert chosen == {2: 0}


@pytest.mark.parametrize(("lags", "expected"), [((0.8, 0.6), {1: 0}), ((1.0, 0.6), {0: 0})])
def test_a_claim_counts_by_the_square_of_its_rounds_and_by_its_workers(
    lags: tuple[float, float], expected: dict[int, int]
) -> None:
    """0.8 squared is less than twice 0.6 squared; 1 is more."""
    sizes = np.array([1, 2], dtype=np.int64)
    chosen, _ = choose(a_selection(np.array([[lags[0]], [lags[1]]]), [2], scale_factor=sizes))
    assert {row: column for row, column in chosen.items() if row in expected} == expected


def test_who_was_chosen_before_has_no_claim_to_a_second_place_alone_or_in_a_pair() -> None:
    selection = a_packed_standing(
        [(0, 1)], [[0.0, 1.0]], [[0.0, 0.0], [0.0, 0.2]], [1, 1], late=((0, 0),), stay_rounds=np.zeros(2)
    )
    assert outcome(selection) == ({0: 0, 1: 1}, [[-1.0, 1.0], [0.0, 0.2]])


# --- pairs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lags", "alone", "expected"),
    [
        ([0.5, 0.5], [0.1, 0.1], ({2: 0}, [[-0.3], [-0.3]])),
        ([0.5, -0.8], [0.1, 0.1], ({0: 0}, [[-0.3], [-0.6]])),
        ([-0.8, 0.5], [0.1, 0.1], ({1: 0}, [[-0.6], [-0.3]])),
        ([0.5, -0.8], [0.0, 0.1], ({2: 0}, [[-0.4], [-1.6]])),
        ([-0.8, 0.5], [0.1, 0.0], ({2: 0}, [[-1.6], [-0.4]])),
    ],
    ids=["both lag", "the first lags", "the second lags", "the first only in a pair", "the second only in a pair"],
)
def test_a_pair_goes_where_both_lag_and_where_one_lags_that_has_no_time_alone(
    lags: list[float], alone: list[float], expected: Outcome
) -> None:
    ledger = np.array(lags)[:, None]
    selection = a_packed_standing([(0, 1)], [[0.1]], np.array(alone)[:, None], [1], ledger=ledger)
    assert outcome(selection) == expected


def test_the_time_that_a_job_shares_is_that_of_all_its_pairs() -> None:
    """Jobs 1 and 2 have no time alone: where their partner is elsewhere, they take only what is left."""
    selection = a_packed_standing(
        [(0, 1), (2, 1)], [[0.5], [0.4]], [[0.0], [0.0], [0.0], [0.3]], [1], late=((0, 0),), ledger=np.zeros((4, 1))
    )
    assert outcome(selection) == ({0: 0}, [[-0.5], [0.9], [0.4], [0.3]])
    more = a_packed_standing([(0, 1), (2, 1)], [[0.5], [0.4]], [[0.0], [0.0], [0.0], [0.3]], [3])
    assert outcome(more) == ({3: 0, 4: 0, 2: 0}, [[-0.5], [-0.1], [-0.6], [-0.7]])


def test_a_pair_has_the_workers_of_one_gang_and_counts_by_them() -> None:
    sizes = np.array([2, 2, 1], dtype=np.int64)
    selection = a_packed_standing([(0, 1)], [[0.5]], [[0.0], [0.0], [0.6]], [2], scale_factor=sizes)
    assert outcome(selection) == ({3: 0}, [[-0.5], [-0.5], [0.6]])


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([1.0, -1e-6, 1.0003, -1.0, -1.0], {2: 0}),
        ([1.0, 0.001, 1.0003, -1.0, -1.0], {5: 0}),
        ([0.5, 0.5, 0.8, -1.0, -1.0], {2: 0}),
        ([0.5, 0.5, 0.4, 0.7, 0.7], {6: 0}),
    ],
    ids=["one does not lag", "both lag", "both lag less than another job", "the pair that lags more"],
)
def test_a_pair_is_worth_what_both_of_its_jobs_lag_and_a_little_less_where_one_does_not(
    lags: list[float], expected: dict[int, int]
) -> None:
    """Jobs 0, 1, 3 and 4 have time only in their pairs; on one worker."""
    selection = a_packed_standing(
        [(0, 1), (3, 4)], [[1e-6], [1e-6]], np.zeros((5, 1)), [1], ledger=np.array(lags)[:, None]
    )
    assert choose(selection)[0] == expected


def test_a_pair_has_a_claim_only_to_a_type_on_which_one_of_its_jobs_lags() -> None:
    lags = np.array([[0.9, -0.9], [0.9, -0.9]])
    selection = a_packed_standing([(0, 1)], [[0.1, 0.1]], np.zeros((2, 2)), [0, 1], ledger=lags)
    assert outcome(selection) == ({0: 1}, [[1.0, -0.8], [1.0, -0.8]])


# --- the published rule -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, ({0: 1, 1: 0}, [[0.0, 1.0], [1.0, 0.0]])),
        ({"fastest_first": (0, 1)}, ({0: 0, 1: 1}, [[1.0, 0.0], [0.0, 1.0]])),
        ({"planner": "published_shuffled", "round_index": 0}, ({0: 1, 1: 0}, [[0.0, 1.0], [1.0, 0.0]])),
        ({"planner": "published_shuffled", "round_index": 1}, ({0: 0, 1: 1}, [[1.0, 0.0], [0.0, 1.0]])),
        ({"is_new_allocation": False}, ({0: 0, 1: 1}, [[1.0, 3.0], [0.0, 1.0]])),
    ],
    ids=["anew", "an order that is given", "in one round", "in another one", "since the last solve"],
)
def test_the_published_rule_fills_types_in_their_order_and_counts_the_rounds(
    over: dict[str, Any], expected: Outcome
) -> None:
    fields = {"rates": np.array([[1.0, 2.0], [1.0, 2.0]]), "ledger": np.array([[0.0, 3.0], [0.0, 0.0]])}
    selection = a_selection([[0.9, 0.9], [0.8, 0.8]], [1, 1], **({"planner": "published"} | fields | over))
    assert outcome(selection) == expected


def test_the_published_rule_takes_each_gang_that_fits_in_order_and_looks_on_behind_one_that_does_not() -> None:
    sizes = np.array([2, 2, 1, 1], dtype=np.int64)
    fields: dict[str, Any] = {"planner": "published", "scale_factor": sizes, "rates": np.array([[1.0]] * 3 + [[0.0]])}
    assert outcome(a_selection([[0.9], [0.8], [0.7], [0.6]], [3], **fields)) == (
        {0: 0, 2: 0},
        [[1.0], [0.0], [1.0], [0.0]],
    )


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([0.0, 0.0, 0.0], ({3: 0}, [[1.0], [1.0], [0.0]])),
        ([0.0, 2.0, 0.0], ({2: 0}, [[0.0], [2.0], [1.0]])),
        ([9.0, 9.0, 9.0], ({3: 0}, [[10.0], [10.0], [9.0]])),
    ],
    ids=["nobody had anything", "one of the pair had some", "all had some"],
)
def test_a_pair_counts_by_what_its_jobs_received_on_average(received: list[float], expected: Outcome) -> None:
    """Job 0 has no time alone, and job 1 none, so that neither goes before job 2 by itself."""
    selection = a_packed_standing(
        [(0, 1)],
        [[0.9]],
        [[0.0], [0.0], [0.5]],
        [1],
        planner="published",
        is_new_allocation=False,
        ledger=np.array(received)[:, None],
    )
    assert outcome(selection) == expected


def test_a_pair_without_time_does_not_go_by_the_published_rule() -> None:
    selection = a_packed_standing([(0, 1)], [[1e-9]], [[0.0], [0.0]], [1], planner="published")
    assert outcome(selection) == ({0: 0}, [[1.0], [0.0]])


# --- what is left -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, {0: 1, 1: 0}),
        ({"kept": np.array([-1, 1, -1])}, {0: 1, 1: 0}),
        ({"kept": np.array([-1, 1, -1]), "stay_rounds": np.array([0.0, 0.0, 1.0])}, {1: 1, 0: 0}),
        ({"kept": np.array([-1, 0, 0]), "minimum_rounds": 1.0}, {1: 0, 0: 1}),
        ({"may_fill": np.array([False, True, True])}, {1: 1, 2: 0}),
        ({"rates": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])}, {1: 0}),
        ({"rates": np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])}, {0: 0, 1: 1}),
        ({"rates": np.array([[1.0, 1.0 + 2e-6]] * 3), "kept": np.array([0, -1, -1])}, {0: 1, 1: 0}),
        ({"rates": np.array([[1.0, 1.0 + 5e-7]] * 3), "kept": np.array([0, -1, -1])}, {0: 0, 1: 1}),
        ({"scale_factor": np.array([2, 1, 1])}, {1: 1, 2: 0}),
        ({"kept": np.array([0, -1, -1]), "minimum_rounds": 1.0}, {0: 0, 1: 1}),
        ({"kept": np.array([0, -1, -1]), "rates": np.array([[3.0, 2.0]] * 3)}, {0: 0, 1: 1}),
    ],
    ids=[
        "in order of arrival on the fastest type",
        "moves are free",
        "a price on moves",
        "of two on one worker the first",
        "who may take what is left",
        "where it can run",
        "types that are alike",
        "a type that is faster",
        "a type that is no faster",
        "whole gangs",
        "a price on moves to a faster type",
        "where it is and is fastest",
    ],
)
def test_what_is_left_goes_to_who_waits_each_alone_on_its_fastest_free_type(
    over: dict[str, Any], expected: dict[int, int]
) -> None:
    fields = {"rates": np.array([[1.0, 2.0]] * 3)}
    selection = a_selection(np.zeros((3, 2)), [1, 1], **(fields | over))
    # A claim by a price is not what this is about: all run ahead by more than that.
    ahead = a_selection(np.zeros((3, 2)), [1, 1], **(fields | over), ledger=np.full((3, 2), -2.0))
    assert choose(ahead)[0] == expected
    assert (choose(selection)[1] == 0.0).all() or selection.holds_on


def test_a_gang_cannot_stay_by_its_price_where_it_no_longer_runs() -> None:
    rates = np.array([[1.0, 1.0], [1.0, 0.0]])
    fields: dict[str, Any] = {"stay_rounds": np.full(2, 1.0), "ledger": np.full((2, 2), -3.0)}
    selection = a_selection(np.zeros((2, 2)), [0, 1], rates=rates, kept=np.array([-1, 1]), **fields)
    assert outcome(selection) == ({0: 1}, [[-3.0, -3.0], [-3.0, -3.0]])


def test_of_many_types_that_are_alike_the_first_one_is_taken() -> None:
    rates = np.tile([1.0, 2.0], (1, 30))
    assert choose(a_selection(np.zeros((1, 60)), [1] * 60, rates=rates))[0] == {0: 1}


# --- a choice by itself -------------------------------------------------------------------------------------------


def a_choice(free: list[int], pairs: Sequence[tuple[int, int]] = ()) -> Choice:
    return Choice(free, [1, 2, 1], pairs)


def test_a_gang_is_taken_whole_once_and_only_where_it_fits() -> None:
    choice = a_choice([1, 2])
    assert [choice.take(1, 0), choice.take(1, 1), choice.take(1, 1), choice.take(0, 1)] == [False, True, False, False]
    assert choice == Choice([1, 0], [1, 2, 1], (), {1: 1}, {1})


@pytest.mark.parametrize(
    ("pairs", "rows", "expected"),
    [
        ((), [0, 1, 2], Choice([0, 1], [1, 2, 1], (), {0: 0, 1: 0}, {0, 1})),
        (((0, 2),), [3, 0, 1, 2], Choice([0, 1], [1, 2, 1], ((0, 2),), {3: 0, 1: 0}, {0, 1, 2})),
    ],
    ids=["alone", "a pair first"],
)
def test_gangs_are_taken_in_order_until_nothing_is_free(
    pairs: Sequence[tuple[int, int]], rows: list[int], expected: Choice
) -> None:
    choice = a_choice([3, 1], pairs)
    choice.take_in_order(rows, 0)
    assert choice == expected
    choice.take_in_order([0, 1], 1)
    assert choice == expected


@pytest.mark.parametrize(
    ("pairs", "rows", "columns", "expected"),
    [
        ((), [0, 1], [1, 0], Choice([1, 0], [1, 2, 1], (), {0: 1, 1: 0}, {0, 1})),
        (((0, 2),), [3, 1], [1, 0], Choice([1, 0], [1, 2, 1], ((0, 2),), {3: 1, 1: 0}, {0, 1, 2})),
    ],
    ids=["alone", "a pair"],
)
def test_gangs_that_fit_are_taken_at_once(
    pairs: Sequence[tuple[int, int]], rows: list[int], columns: list[int], expected: Choice
) -> None:
    choice = a_choice([3, 1], pairs)
    choice.take_all(rows, columns)
    assert choice == expected
