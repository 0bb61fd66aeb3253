"""In which region jobs are at home, and which moves pay: the pure decision."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.planning.regions import (
    MOVES_MAX,
    NO_REGION,
    MoveTerms,
    RegionProblem,
    choose_homes,
    equal_share,
    expected_gbit_s,
    gains,
    shared_rates,
)
from gavel.types.regions import LinkCopies

TERMS = MoveTerms(margin_fraction=0.25, horizon_s=36_000.0)


def problem(homes: list[int], **other: object) -> RegionProblem:
    """Two regions with two workers of one type each; jobs of an hour alone, whose copies take no time."""
    count = len(homes)
    base = RegionProblem(
        region_of_type=np.array([0, 1]),
        capacity_workers=np.array([2, 2]),
        price_usd_per_hour=np.array([1.0, 1.0]),
        steps_per_s=np.ones((count, 2)),
        scale_factor=np.ones(count, dtype=np.int64),
        steps_left=np.full(count, 3600.0),
        home=np.array(homes),
        may_move=np.ones(count, dtype=np.bool_),
        copy_s=np.zeros((count, 2)),
        egress_usd=np.zeros((count, 2)),
    )
    return replace(base, **other)


def to_other(value: float, homes: list[int]) -> np.ndarray:
    """What copying to the other region costs, (n, 2), 0 for the own one."""
    return np.array([[0.0 if region == home else value for region in (0, 1)] for home in homes])


def test_jobs_of_a_crowded_region_move_to_an_empty_one_until_both_are_alike() -> None:
    homes = choose_homes(problem([0, 0, 0, 0]), TERMS)
    assert sorted(homes.region.tolist()) == [0, 0, 1, 1]


def test_nobody_moves_where_there_is_room_for_all() -> None:
    assert choose_homes(problem([0, 0, 1]), TERMS).region.tolist() == [0, 0, 1]


def test_jobs_are_at_home_nowhere_while_no_region_has_a_node_that_can_be_used() -> None:
    none = np.zeros((2, 0))
    nowhere = problem([NO_REGION, NO_REGION], steps_per_s=none, copy_s=none, egress_usd=none)
    nowhere = replace(nowhere, region_of_type=np.zeros(0, dtype=np.int64), capacity_workers=np.zeros(0, dtype=np.int64))
    assert choose_homes(nowhere, TERMS).region.tolist() == [NO_REGION, NO_REGION]


def test_a_copy_that_takes_longer_than_it_gains_is_not_made() -> None:
    crowded = [0, 0, 0, 0]
    quick = problem(crowded, copy_s=to_other(600.0, crowded))
    assert choose_homes(quick, TERMS).region.tolist() != crowded
    slow = problem(crowded, copy_s=to_other(4000.0, crowded))
    assert choose_homes(slow, TERMS).region.tolist() == crowded


def test_a_copy_that_costs_more_than_the_accelerator_time_it_gains_is_not_made() -> None:
    crowded = [0, 0, 0, 0]
    gained_usd = 1.0  # two hours at half the speed, or one
    cheap = problem(crowded, egress_usd=to_other(0.7 * gained_usd, crowded))
    assert choose_homes(cheap, TERMS).region.tolist() != crowded
    dear = problem(crowded, egress_usd=to_other(0.9 * gained_usd, crowded))
    assert choose_homes(dear, TERMS).region.tolist() == crowded


def test_a_move_has_to_pay_within_the_horizon() -> None:
    crowded = [0, 0, 0, 0]
    asked = problem(crowded, copy_s=to_other(600.0, crowded), steps_left=np.full(4, 36_000.0))
    assert choose_homes(asked, TERMS).region.tolist() != crowded
    assert choose_homes(asked, replace(TERMS, horizon_s=700.0)).region.tolist() == crowded


def test_a_job_that_cannot_run_at_home_moves_whatever_it_costs() -> None:
    asked = problem([0], steps_per_s=np.array([[0.0, 1.0]]), copy_s=to_other(1e6, [0]), egress_usd=to_other(1e4, [0]))
    assert choose_homes(asked, TERMS).region.tolist() == [1]


def test_a_new_job_without_data_goes_where_it_ends_soonest() -> None:
    assert choose_homes(problem([0, 0, 1, NO_REGION]), TERMS).region[-1] == 1
    fast_there = np.array([[1.0, 1.0]] * 3 + [[4.0, 1.0]])
    assert choose_homes(problem([0, 0, 1, NO_REGION], steps_per_s=fast_there), TERMS).region[-1] == 0


def test_only_jobs_that_may_move_do() -> None:
    may = np.array([False, False, False, False])
    assert choose_homes(problem([0, 0, 0, 0], may_move=may), TERMS).region.tolist() == [0, 0, 0, 0]


def test_an_equal_share_leaves_the_slowest_workers_idle() -> None:
    rates = equal_share(np.array([[4.0, 1.0]]), np.array([1, 3]), np.array([2.0]))
    assert rates.tolist() == [(1 * 4.0 + 1 * 1.0) / 2]


@st.composite
def problems(draw: st.DrawFn) -> RegionProblem:
    """Up to 12 jobs in up to 4 regions with up to 3 types each."""
    regions, jobs = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    region_of_type = np.array(draw(st.lists(st.integers(0, regions - 1), min_size=1, max_size=9)))
    types = len(region_of_type)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    home = rng.integers(NO_REGION, regions, jobs)
    other = home[:, None] != np.arange(regions)
    return RegionProblem(
        region_of_type=region_of_type,
        capacity_workers=rng.integers(1, 9, types),
        price_usd_per_hour=rng.uniform(0, 3, types),
        steps_per_s=rng.uniform(0, 5, (jobs, types)) * (rng.random((jobs, types)) < 0.8),
        scale_factor=rng.integers(1, 5, jobs),
        steps_left=rng.uniform(1, 1e6, jobs),
        home=home,
        may_move=rng.random(jobs) < 0.8,
        copy_s=rng.uniform(0, 1e5, (jobs, regions)) * other,
        egress_usd=rng.uniform(0, 50, (jobs, regions)) * other,
    )


@given(asked=problems())
@settings(max_examples=150)
def test_a_move_leads_where_the_job_can_run_and_nobody_else_moves(asked: RegionProblem) -> None:
    homes = choose_homes(asked, TERMS)
    moved = homes.region != asked.home
    assert not (moved & ~asked.may_move).any()
    assert moved.sum() <= MOVES_MAX + (asked.home == NO_REGION).sum()
    for row in np.flatnonzero(moved).tolist():
        there = asked.region_of_type == homes.region[row]
        assert (asked.steps_per_s[row, there] > 0).any()


@given(asked=problems())
@settings(max_examples=150)
def test_no_move_that_pays_is_left(asked: RegionProblem) -> None:
    homes = choose_homes(asked, TERMS)
    stayed = asked.may_move & (homes.region == asked.home) & (asked.home != NO_REGION)
    left = gains(replace(asked, home=homes.region, may_move=stayed), TERMS)
    assert not (left.is_faster & left.is_worth & (left.gain_usd > 0)).any()


@given(stated=st.floats(1e-3, 1e4), gigabytes=st.floats(0.01, 1e4), seconds=st.floats(1e-3, 1e6))
def test_the_expected_bandwidth_is_between_the_stated_and_the_measured_one(
    stated: float, gigabytes: float, seconds: float
) -> None:
    copies = LinkCopies(origin="eu", target="us", copies=3, gigabytes=gigabytes, seconds=seconds)
    expected, measured = expected_gbit_s(stated, copies), 8 * gigabytes / seconds
    assert min(stated, measured) * (1 - 1e-9) <= expected <= max(stated, measured) * (1 + 1e-9)
    assert expected_gbit_s(stated, None) == stated


@given(asked=problems())
@settings(max_examples=50)
def test_rates_are_those_of_the_fastest_worker_at_most(asked: RegionProblem) -> None:
    rates = shared_rates(asked)
    most = asked.steps_per_s.max(axis=1, initial=0.0)
    assert (rates <= most[:, None] * (1 + 1e-9)).all() and (rates >= 0).all()
