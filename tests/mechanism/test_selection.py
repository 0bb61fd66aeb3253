"""How closely rounds follow an allocation, what a price on moves and a minimum stay do, and how pairs run."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.mechanism import an_instance, follow
from gavel.mechanism.planning.planner import stay_rounds
from gavel.mechanism.planning.selection import SelectionProblem, choose
from gavel.types import FloatArray

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
ROUNDS = 1_000 if FULL else 150
SEEDS = (0, 1) if FULL else (0,)
WAITS_MAX = 30.0  # rounds by target fraction


def a_selection(target_fraction: Any, capacity: list[int], **over: Any) -> SelectionProblem:
    shares = np.array(target_fraction, dtype=float)
    fields: dict[str, Any] = {
        "rates": np.ones_like(shares),
        "scale_factor": np.ones(len(shares), dtype=np.int64),
        "capacity_workers": np.array(capacity, dtype=np.int64),
        "target_fraction": shares,
        "ledger": np.zeros_like(shares),
        "kept": np.full(len(shares), -1),
        "round_index": 1,
    }
    return SelectionProblem(**(fields | over))


def rounds_of(selection: SelectionProblem, rounds: int) -> Iterator[tuple[dict[int, int], FloatArray]]:
    """Gangs (row -> column) and ledger of each round of an unchanging allocation."""
    count = len(selection.rates)
    for index in range(1, rounds + 1):
        chosen, ledger = choose(selection)
        yield chosen, ledger
        kept = np.full(count, -1)
        for row, column in chosen.items():
            kept[list(selection.pairs[row - count] if row >= count else (row,))] = column
        selection = replace(selection, ledger=ledger, kept=kept, round_index=index + 1)


@pytest.mark.full("150-gangs of 1 to 8")
@pytest.mark.parametrize("gangs", [False, True], ids=["single workers", "gangs of 1 to 8"])
@pytest.mark.parametrize("jobs", [60, 150])
def test_no_job_falls_behind_its_allocation_further_than_the_bound(jobs: int, gangs: bool) -> None:
    bound = 2.5 if gangs else 1.25
    for load in (0.4, 0.8, 1.0):
        for seed in SEEDS:
            assert follow(an_instance(jobs, load, seed, gangs=gangs), ROUNDS).lag_rounds <= bound


def test_the_published_rule_falls_further_behind_on_the_same_allocation() -> None:
    instance = an_instance(60, 0.8, 0)
    assert follow(instance, ROUNDS, "published").lag_rounds > follow(instance, ROUNDS).lag_rounds


@st.composite
def crowded(draw: st.DrawFn) -> SelectionProblem:
    """Gangs whose target fractions fit as fractions, though perhaps in no sequence of whole gangs."""
    workers = draw(st.integers(2, 12))
    sizes = draw(st.lists(st.integers(1, workers), min_size=2, max_size=6))
    weights = np.array(draw(st.lists(st.floats(0.1, 1.0), min_size=len(sizes), max_size=len(sizes))))
    wanted = np.minimum(1.0, weights * workers / (weights @ np.array(sizes)))
    price = draw(st.sampled_from([0.0, 0.8, 2.0]))
    return a_selection(
        wanted[:, None],
        [workers],
        scale_factor=np.array(sizes, dtype=np.int64),
        stay_rounds=np.full(len(sizes), price) if price else np.zeros(0),
    )


@given(crowded())
@settings(max_examples=200 if FULL else 25)
def test_every_gang_gets_its_turn_though_no_sequence_of_whole_gangs_gives_all_their_time(
    selection: SelectionProblem,
) -> None:
    """1 to begin with, 2 when lags have grown to their limit: nobody waits longer than a few times its limit."""
    longest = np.zeros(len(selection.rates))
    waits = np.zeros(len(selection.rates))
    for chosen, _ in rounds_of(selection, 300):
        waits += 1
        waits[list(chosen)] = 0
        longest = np.maximum(longest, waits)
    assert (longest * selection.target_fraction[:, 0] <= WAITS_MAX).all(), longest


def test_a_gang_of_all_workers_is_not_starved_by_smaller_ones_that_have_nearly_all() -> None:
    """A gang of 4 on 4 workers, and one that would have 3 of them in every round, with a price on moves."""
    sizes = np.array([3, 4], dtype=np.int64)
    selection = a_selection([[1.0], [0.25]], [4], scale_factor=sizes, stay_rounds=np.full(2, 0.8))
    turns = [index for index, (chosen, _) in enumerate(rounds_of(selection, 400)) if 1 in chosen]
    assert max(after - before for before, after in pairwise([0, *turns, 400])) <= 20


def test_a_price_on_moves_makes_fewer_of_them_and_costs_no_more_lag_than_the_price() -> None:
    instance = an_instance(60, 1.0, 1)
    free, dear = follow(instance, ROUNDS), follow(instance, ROUNDS, switch_cost_s=20.0)
    assert dear.starts_per_round < free.starts_per_round / 2
    assert dear.lag_rounds <= 1.25 + 2.0  # 20 s of a round of 10 s: sqrt(2 * 2) rounds


def test_the_price_grows_with_the_root_of_what_a_move_costs() -> None:
    assert stay_rounds(["a", "b", "c"], {"a": 5.0, "b": 0.0, "": 20.0}, 10.0).tolist() == [1.0, 0.0, 2.0]
    assert stay_rounds(["a"], {"a": 0.0}, 10.0).size == 0


@settings(max_examples=200 if FULL else 30)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.floats(1.0, 4.0), st.integers(1, 3))
def test_gangs_never_evict_each_other_round_after_round(shares: list[float], price: float, workers: int) -> None:
    """A gang that took another's place keeps it for at least about the price in rounds before it gives it back."""
    target_fraction = np.array(shares)[:, None] * min(1.0, workers / sum(shares))
    selection = a_selection(target_fraction, [min(workers, len(shares) - 1)], stay_rounds=np.full(len(shares), price))
    runs = np.array([[row in chosen for row in range(len(shares))] for chosen, _ in rounds_of(selection, 60)])
    assert (target_fraction.sum() <= workers + 1e-9) and runs.any()
    for row in range(len(shares)):
        changes = np.flatnonzero(np.diff(runs[:, row].astype(int)))
        stints = np.diff(changes)[runs[changes[:-1] + 1, row]] if changes.size > 1 else np.array([])
        assert (stints >= np.floor(price)).all()


def swaps_back(columns: np.ndarray[Any, Any], types: int) -> list[int]:
    """The rounds in which a gang took back a place that it gave just before, of a gang that took it; (rounds, jobs)."""
    swaps = []
    for index, (before, now, after) in enumerate(zip(columns, columns[1:], columns[2:], strict=False)):
        for column in range(types):
            came, left = (now == column) & (before != column), (now != column) & (before == column)
            if (came & (after != column)).any() and (left & (after == column)).any():
                swaps.append(index)
    return swaps


@pytest.mark.parametrize("gangs", [False, True], ids=["single workers", "gangs of 1 to 8"])
def test_with_a_price_hardly_a_gang_and_never_twice_in_a_row_takes_back_the_place_it_just_gave(gangs: bool) -> None:
    swaps = {}
    for price in (0.0, 1.5):
        instance = an_instance(60, 1.0, 0, gangs=gangs)
        selection = a_selection(
            instance.target_fraction,
            instance.capacity_workers.tolist(),
            scale_factor=instance.scale_factor,
            stay_rounds=np.full(60, price),
        )
        runs = np.full((ROUNDS, 60), -1)
        for index, (chosen, _) in enumerate(rounds_of(selection, ROUNDS)):
            runs[index, list(chosen)] = list(chosen.values())
        swaps[price] = swaps_back(runs, 3)
    assert len(swaps[0.0]) > ROUNDS and len(swaps[1.5]) <= (ROUNDS / 100 if gangs else 0)
    assert all(one + 1 < other for one, other in pairwise(swaps[1.5]))


def test_a_gang_that_stays_for_a_price_gives_the_rounds_back() -> None:
    selection = a_selection([[0.5], [0.5]], [1], stay_rounds=np.full(2, 1.5))
    got = np.zeros(2)
    for chosen, ledger in rounds_of(selection, 100):
        got[list(chosen)] += 1
        assert np.abs(ledger).max() <= 1.25 + 1.5
    assert np.abs(got - 50).max() <= 2


def test_pinned_gangs_stay_whoever_is_owed_more() -> None:
    selection = a_selection([[0.0], [1.0]], [1], kept=np.array([0, -1]), pinned=(0,))
    chosen, ledger = choose(selection)
    assert chosen == {0: 0} and ledger.tolist() == [[-1.0], [1.0]]


def test_what_others_do_not_need_goes_to_waiting_jobs_and_is_not_held_against_them() -> None:
    chosen, ledger = choose(a_selection([[0.0], [0.5]], [2]))
    assert chosen == {0: 0, 1: 0} and ledger.tolist() == [[0.0], [-0.5]]


def test_a_waiting_gang_does_not_move_to_a_type_that_is_no_faster() -> None:
    assert choose(a_selection([[0.0, 0.0]], [1, 1], kept=np.array([1])))[0] == {0: 1}


def a_packed_standing(pairs: Any, of_pair: Any, alone: Any, capacity: list[int], **over: Any) -> SelectionProblem:
    target_fraction, packed = np.array(alone, dtype=float), np.array(of_pair, dtype=float)
    for (one, other), share in zip(pairs, packed, strict=True):
        target_fraction[one] += share
        target_fraction[other] += share
    return a_selection(target_fraction, capacity, pairs=pairs, pair_target_fraction=packed, **over)


def test_a_pair_runs_on_the_workers_of_one_gang_and_both_receive_the_round() -> None:
    chosen, ledger = choose(a_packed_standing([(0, 1)], [[1.0]], [[0.0], [0.0]], [1]))
    assert chosen == {2: 0} and not ledger.any()


def test_time_promised_alone_is_received_alone() -> None:
    """Job 0 is to run alone half of the time and with job 1 the other half."""
    selection = a_packed_standing([(0, 1)], [[0.5]], [[0.5], [0.0]], [1])
    ran = [tuple(chosen) for chosen, _ in rounds_of(selection, 40)]
    assert abs(ran.count((2,)) - 20) <= 1 and abs(ran.count((0,)) - 20) <= 1


def test_every_job_of_pairs_that_overlap_receives_its_time_and_no_pair_runs_unpromised() -> None:
    """Who shares with whom may shift, since lags are kept per job: each pair still gets over half of its part."""
    pairs = [(0, 1), (1, 2), (3, 4), (0, 4)]
    of_pair = [[0.3], [0.4], [0.8], [0.0]]
    selection = a_packed_standing(pairs, of_pair, [[0.2], [0.1], [0.1], [0.0], [0.1]], [2])
    ran: list[int] = []
    for chosen, ledger in rounds_of(selection, 200):
        ran.extend(chosen)
        assert ledger.max() <= 1.25
    got = np.array([ran.count(row) / 200 for row in (5, 6, 7, 8)])
    assert (got[:3] > 0.5 * np.array([0.3, 0.4, 0.8])).all() and got[3] == 0


def test_the_published_rule_takes_pairs_by_their_own_priority() -> None:
    selection = a_packed_standing([(0, 1)], [[0.9]], [[0.1], [0.0]], [1], planner="published")
    chosen, ledger = choose(selection)
    assert chosen == {2: 0} and ledger.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("load", [0.4, 0.8, 1.0])
@pytest.mark.parametrize("minimum", [2, 4])
def test_a_minimum_run_costs_no_more_lag_than_its_rounds(minimum: int, load: float) -> None:
    instance = an_instance(60, load, 1)
    selection = a_selection(instance.target_fraction, instance.capacity_workers.tolist(), minimum_rounds=float(minimum))
    since, lag = np.zeros(60), 0.0
    for index in range(1, ROUNDS + 1):
        young = (selection.kept >= 0) & (index - since < minimum)
        chosen, ledger = choose(replace(selection, pinned=tuple(np.flatnonzero(young).tolist()), round_index=index))
        kept = np.full(60, -1)
        kept[list(chosen)] = list(chosen.values())
        assert (kept[young] == selection.kept[young]).all()
        since = np.where(kept == selection.kept, since, index)
        selection = replace(selection, kept=kept, ledger=ledger)
        lag = max(lag, float(ledger.max()))
    assert 1.25 < lag <= 1.25 + minimum
