"""What claims on workers leave to one more claim: at their starts and ends, on each type, and in sentences."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.jobs.reservations import TRIED_MAX, Calendar, Claim
from gavel.types import Tier

GOLD = {"gold": Tier(name="gold")}
LIMITED = {"gold": Tier(name="gold", non_preemptible_workers=3), "low": Tier(name="low")}
CAPACITY = {"fast": 4, "slow": 2}
BOTH = ("fast", "slow")


def a_claim(starts_at_s: float = 100.0, ends_at_s: float = 200.0, **over: Any) -> Claim:
    fields: dict[str, Any] = {"tier": "gold", "workers": 3, "types": ("fast",)}
    return Claim(**fields | over, starts_at_s=starts_at_s, ends_at_s=ends_at_s)


def a_calendar(*claims: Claim, tiers: dict[str, Tier] | None = None) -> Calendar:
    return Calendar(GOLD if tiers is None else tiers, CAPACITY, claims)


def test_a_claim_holds_from_its_start_until_its_end() -> None:
    held = {at_s: a_claim().holds_at(at_s) for at_s in (99.9, 100.0, 199.9, 200.0)}
    assert held == {99.9: False, 100.0: True, 199.9: True, 200.0: False}
    assert Claim(tier="gold", workers=1, types=(), starts_at_s=0.0).holds_at(1e12)


@pytest.mark.parametrize(
    ("starts_at_s", "ends_at_s", "expected"),
    [
        (0.0, 100.0, ["slow", "fast"]),
        (0.0, 100.1, ["slow"]),
        (150.0, 160.0, ["slow"]),
        (199.9, 300.0, ["slow"]),
        (200.0, 300.0, ["slow", "fast"]),
        (0.0, inf, ["slow"]),
    ],
    ids=["ends as it begins", "ends within it", "within it", "begins within it", "begins as it ends", "around it"],
)
def test_a_type_has_room_for_a_claim_from_its_start_to_its_end(
    starts_at_s: float, ends_at_s: float, expected: list[str]
) -> None:
    calendar = a_calendar()
    calendar.add(a_claim())
    assert calendar.types(a_claim(starts_at_s, ends_at_s, workers=2, types=("slow", "fast"))) == expected
    assert calendar.types(a_claim(starts_at_s, ends_at_s, workers=1)) == ["fast"]


def test_a_claim_that_may_be_on_either_type_takes_workers_of_both() -> None:
    calendar = a_calendar(a_claim(workers=2, types=BOTH))
    assert calendar.types(a_claim(workers=1, types=BOTH)) == ["fast"]
    assert calendar.types(a_claim(workers=3, types=BOTH)) == []


def test_limits_of_tiers_hold_at_each_instant() -> None:
    calendar = a_calendar(a_claim(workers=2, types=("slow",)), tiers=LIMITED)
    assert calendar.types(a_claim(workers=1)) == ["fast"] and calendar.types(a_claim(workers=2)) == []
    assert calendar.types(a_claim(200.0, 300.0)) == ["fast"]
    assert calendar.types(a_claim(tier="low", workers=4)) == ["fast"]


def test_a_claim_that_begins_now_is_only_in_the_way_of_those_that_begin_later() -> None:
    """What is held already is not asked here."""
    calendar = a_calendar(a_claim(100.0, 110.0), a_claim(150.0, 160.0, types=("slow",), workers=1))
    wanted = a_claim(workers=2, types=BOTH)
    assert calendar.types_later(wanted) == ["fast"] and calendar.types(wanted) == []
    assert calendar.types_later(replace(wanted, ends_at_s=150.0)) == ["fast", "slow"]


def test_the_least_that_is_free_is_that_of_the_fullest_instant_of_a_claim() -> None:
    calendar = a_calendar(a_claim(100.0, 120.0, workers=1), a_claim(110.0, 130.0, workers=2))
    least = {
        (starts_at_s, ends_at_s): calendar.least_free("fast", a_claim(starts_at_s, ends_at_s))
        for starts_at_s, ends_at_s in ((0.0, 100.0), (0.0, 110.0), (0.0, 200.0), (120.0, 200.0), (130.0, 200.0))
    }
    assert least == {(0.0, 100.0): 4, (0.0, 110.0): 3, (0.0, 200.0): 1, (120.0, 200.0): 2, (130.0, 200.0): 4}
    assert calendar.least_free("gone", a_claim()) == 0


# --- sentences --------------------------------------------------------------------------------------------------


def test_the_first_instant_without_enough_workers_is_named_with_what_is_left() -> None:
    calendar = a_calendar(a_claim(120.0), a_claim(130.0, types=BOTH, workers=1), a_claim(150.0, types=("slow",)))
    assert calendar.why_not(a_claim(workers=2, types=("slow", "fast", "gone"))) == (
        "It needs 2 workers of one accelerator type. Jobs that may not be preempted, and reservations, leave"
        " 1 of 2 slow, 0 of 4 fast, 0 of 0 gone at 1970-01-01 00:02:10 UTC."
    )


def test_more_may_be_held_than_there_is() -> None:
    calendar = a_calendar(a_claim(), a_claim())
    assert "leave 0 of 4 fast at 1970-01-01 00:01:40 UTC" in calendar.why_not(a_claim(workers=1))


def test_a_limit_is_named_where_there_are_enough_workers() -> None:
    calendar = a_calendar(a_claim(120.0, workers=2, types=("slow",)), tiers=LIMITED)
    assert calendar.why_not(a_claim(workers=2)) == (
        "Jobs that may not be preempted hold 2 of the 3 workers that tier gold lets them hold; this one needs 2 more."
        " That is so at 1970-01-01 00:02:00 UTC."
    )


def test_a_cap_is_named_where_there_are_just_enough_workers() -> None:
    assert a_calendar(tiers={"gold": Tier(name="gold", cap=0.5)}).why_not(a_claim(workers=4)) == (
        "The job may not be preempted and needs 4 more of one accelerator type. Its tier's cap and the guarantees of"
        " other tiers do not leave so many to jobs that stay. That is so at 1970-01-01 00:01:40 UTC."
    )


def test_types_that_are_full_at_different_times_are_named_together() -> None:
    calendar = a_calendar(a_claim(110.0, 120.0), a_claim(150.0, 160.0, types=("slow",), workers=1))
    wanted = a_claim(workers=2, types=BOTH)
    assert calendar.types(wanted) == []
    assert calendar.why_not(wanted) == "No accelerator type has room for it all the time."


# --- advice -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earliest_s", "latest_s", "expected"),
    [
        (0.0, 1e6, 0.0),
        (0.1, 1e6, 60.0),
        (31.0, 1e6, 60.0),
        (61.0, 1e6, 240.0),
        (61.0, 200.1, 240.0),
        (61.0, 200.0, None),
        (200.0, 1e6, 240.0),
    ],
    ids=["at once", "the next minute", "still before it", "after it", "as late as may be", "too late", "it is over"],
)
def test_the_next_instant_is_the_first_whole_minute_with_room(
    earliest_s: float, latest_s: float, expected: float | None
) -> None:
    """A claim of 40 s, beside one from 100 s to 200 s."""
    assert a_calendar(a_claim()).next_at_s(a_claim(0.0, 40.0, workers=2), earliest_s, latest_s) == expected


@pytest.mark.parametrize("later", [a_claim(260.0, 300.0), a_claim(279.0, 300.0)])
def test_a_claim_has_its_length_at_another_time(later: Claim) -> None:
    """40 s from minute 4 on are until 280 s."""
    wanted = a_claim(50.0, 90.0, workers=2)
    assert a_calendar(a_claim(), later).next_at_s(wanted, 61.0, 1e6) == 300.0
    assert a_calendar(a_claim(), a_claim(280.0, 300.0)).next_at_s(wanted, 61.0, 1e6) == 240.0


def test_a_claim_without_an_end_waits_for_all_that_begin_later() -> None:
    calendar = a_calendar(a_claim(), a_claim(400.0, 500.0))
    assert calendar.next_at_s(a_claim(0.0, inf), 0.0, 1e6) == 540.0
    assert a_calendar(a_claim(100.0, inf)).next_at_s(a_claim(0.0, 200.0), 0.0, 1e6) is None


def test_no_more_than_so_many_ends_are_tried() -> None:
    full = [a_claim(60.0 * index, 60.0 * (index + 1), workers=4) for index in range(TRIED_MAX + 1)]
    wanted = a_claim(0.0, 60.0)
    assert a_calendar(*full[:-1]).next_at_s(wanted, 0.0, 1e6) == 60.0 * TRIED_MAX
    assert a_calendar(*full).next_at_s(wanted, 0.0, 1e6) is None


CLAIMS = st.lists(
    st.builds(
        lambda start, length, workers, types: a_claim(start, start + length, workers=workers, types=types),
        st.integers(0, 9).map(float),
        st.integers(1, 9).map(float),
        st.integers(1, 4),
        st.sampled_from([("fast",), ("slow",), BOTH]),
    ),
    max_size=6,
)


@given(claims=CLAIMS, start=st.integers(0, 9), length=st.integers(1, 9), workers=st.integers(1, 4))
def test_a_type_is_free_exactly_if_it_is_at_every_second(
    claims: list[Claim], start: int, length: int, workers: int
) -> None:
    """All claims begin and end at whole seconds."""
    wanted, calendar = a_claim(start, start + length, workers=workers, types=BOTH), a_calendar(*claims)
    free = {
        name: min(
            CAPACITY[name] - sum(each.workers for each in claims if name in each.types and each.holds_at(at_s))
            for at_s in range(start, start + length)
        )
        for name in BOTH
    }
    assert calendar.types(wanted) == [name for name in BOTH if free[name] >= workers]
    assert {name: calendar.least_free(name, wanted) for name in BOTH} == free
