"""What gangs that may not be preempted leave to one more: at each limit, beside it and above it."""

from typing import Any

import pytest

from gavel.mechanism.jobs.non_preemptible_limits import Room, beyond_guarantees
from gavel.types import Tier
from tests.builders import a_spec

CAPACITY = {"fast": 8, "slow": 4}
BOTH = ("fast", "slow")


def a_room(*tiers: Tier, capacity: dict[str, int] | None = None) -> Room:
    return Room({tier.name: tier for tier in tiers}, CAPACITY if capacity is None else capacity)


def lab(**over: Any) -> tuple[Tier, ...]:
    """Two tiers below one, and one beside it."""
    return (
        Tier(name="lab", **over),
        Tier(name="a", parent="lab"),
        Tier(name="b", parent="lab"),
        Tier(name="gold"),
    )


@pytest.mark.parametrize(
    ("tier", "is_bounded"),
    [
        (Tier(name="gold"), False),
        (Tier(name="gold", non_preemptible_workers=0), True),
        (Tier(name="gold", cap=0.9), True),
        (Tier(name="gold", guarantee=0.1), True),
    ],
    ids=["nothing", "a limit", "a cap", "a guarantee"],
)
def test_a_room_is_bounded_by_any_rule_of_any_tier(tier: Tier, is_bounded: bool) -> None:
    assert a_room(Tier(name="other"), tier).is_bounded is is_bounded


def test_a_limit_counts_the_workers_of_the_tiers_below_once_on_however_many_types_they_may_be() -> None:
    room = a_room(*lab(non_preemptible_workers=4))
    room.take("a", 2, BOTH)
    room.take("gold", 3, ("fast",))
    assert room.types("b", 2, BOTH) == ["fast", "slow"]
    assert room.types("b", 3, BOTH) == room.types("lab", 3, BOTH) == []
    room.take("b", 1, BOTH)
    assert room.types("lab", 1, BOTH) == ["fast", "slow"] and room.types("a", 2, BOTH) == []


@pytest.mark.parametrize(
    ("tier", "workers"),
    [
        (Tier(name="gold", non_preemptible_workers=3), 6),
        (Tier(name="gold", cap=0.5), 6),
        (Tier(name="gold", guarantee=0.5), 3),
    ],
    ids=["a limit", "a cap", "all there are"],
)
def test_parts_of_workers_that_are_shared_add_up_to_whole_ones_but_for_rounding(tier: Tier, workers: int) -> None:
    assert 2.2 + 0.2 + 0.6 > 3.0
    room = a_room(tier, capacity={"fast": workers})
    for size in (2.2, 0.2):
        room.take("gold", size, ("fast",))
    assert room.types("gold", 0.6, ("fast",)) == ["fast"] and room.types("gold", 0.7, ("fast",)) == []


def test_a_cap_is_of_each_type_and_counts_the_tiers_below() -> None:
    room = a_room(*lab(cap=0.5))
    room.take("a", 2, ("fast",))
    assert room.types("b", 2, BOTH) == ["fast", "slow"]
    assert room.types("b", 3, BOTH) == [] and room.types("gold", 3, BOTH) == ["fast", "slow"]
    room.take("b", 1, ("fast",))
    assert room.types("a", 2, BOTH) == ["slow"] and room.types("lab", 2, BOTH) == ["slow"]


def test_the_types_are_those_asked_for_in_their_order() -> None:
    room = a_room(Tier(name="gold"))
    assert room.types("gold", 1, ("slow", "fast")) == ["slow", "fast"] and room.types("gold", 5, BOTH) == ["fast"]


def test_others_are_left_what_they_are_guaranteed_unless_they_hold_it_already() -> None:
    room = a_room(Tier(name="gold", guarantee=0.5), Tier(name="low"))
    assert room.types("low", 4, ("fast",)) == ["fast"] and room.types("low", 5, ("fast",)) == []
    room.take("gold", 3, ("fast",))
    assert room.types("low", 4, ("fast",)) == ["fast"] and room.types("low", 5, ("fast",)) == []
    room.take("gold", 2, ("fast",))
    assert room.types("low", 3, ("fast",)) == ["fast"] and room.types("low", 4, ("fast",)) == []
    assert room.types("gold", 3, ("fast",)) == ["fast"] and room.types("gold", 4, ("fast",)) == []


def test_a_gang_below_a_guarantee_is_part_of_what_is_guaranteed() -> None:
    room = a_room(*lab(guarantee=0.5))
    room.take("gold", 4, ("fast",))
    room.take("a", 3, ("fast",))
    assert room.types("b", 1, ("fast",)) == ["fast"]
    assert room.types("b", 2, ("fast",)) == [] == room.types("gold", 1, ("fast",))
    assert room.types("b", 1, ("fast",)) == ["fast"], "to ask holds nothing"


def test_a_tier_whose_parent_is_unknown_is_beside_those_without_one() -> None:
    room = a_room(Tier(name="gold", parent="gone", guarantee=0.5), Tier(name="low"))
    assert room.types("low", 5, ("fast",)) == [] and room.types("low", 4, ("fast",)) == ["fast"]


def test_a_type_whose_nodes_have_all_gone_has_no_workers() -> None:
    room = a_room(Tier(name="gold", cap=0.5))
    room.take("gold", 1, ("gone",))
    assert room.types("gold", 1, ("gone", "fast")) == ["fast"]


def test_more_may_be_held_and_guaranteed_than_there_is() -> None:
    room = a_room(Tier(name="gold", guarantee=0.5), Tier(name="low"))
    room.take("low", 4, ("fast",))
    room.take("low", 2, ("slow",))
    assert room.overcommitted() is None
    room.take("low", 1, ("slow",))
    assert room.overcommitted() == ("slow", 5.0, 4)
    room.take("low", 1, ("fast",))
    assert room.overcommitted() == ("fast", 9.0, 8)
    assert a_room().overcommitted() is None


# --- sentences --------------------------------------------------------------------------------------------------


def test_a_gang_that_its_tier_never_allows_is_told_the_number() -> None:
    room = a_room(*lab(non_preemptible_workers=2))
    assert room.why_never(a_spec(tier="a", scale_factor=2), BOTH) is None
    assert room.why_never(a_spec(tier="a", scale_factor=3), BOTH) == (
        "a gang of 3 that may not be preempted could never start: 2 workers are all that jobs of tier lab may hold"
        " without preemption"
    )


def test_a_gang_that_no_type_has_room_for_is_told_so() -> None:
    room = a_room(Tier(name="gold", cap=0.5))
    assert room.why_never(a_spec(scale_factor=4), BOTH) is None
    assert room.why_never(a_spec(scale_factor=5), BOTH) == (
        "a gang of 5 that may not be preempted could never start: its tier's cap and the guarantees of other tiers"
        " leave no accelerator type with so many workers without preemption"
    )
    assert room.why_never(a_spec(scale_factor=5), ()) is None, "that it fits nowhere is said elsewhere"
    assert a_room(Tier(name="gold")).why_never(a_spec(scale_factor=9), BOTH) is None, "so it is without any rule"


def test_a_job_that_waits_for_a_limit_is_told_what_is_held() -> None:
    room = a_room(*lab(non_preemptible_workers=4))
    room.take("a", 1.5, ("fast",))
    assert room.why_not("b", 3) == (
        "Jobs that may not be preempted hold 1.5 of the 4 workers that tier lab lets them hold; this one needs 3 more."
    )


def test_a_job_that_waits_for_room_is_told_so() -> None:
    assert a_room(*lab()).why_not("b", 3) == (
        "The job may not be preempted and needs 3 more of one accelerator type. Its tier's cap and the guarantees of"
        " other tiers do not leave so many to jobs that stay."
    )


# --- limits that guarantees do not leave room for -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "beyond"),
    [
        ((Tier(name="a", non_preemptible_workers=99), Tier(name="b")), {}),
        ((Tier(name="a", non_preemptible_workers=6), Tier(name="b", guarantee=0.5)), {}),
        ((Tier(name="a", non_preemptible_workers=7), Tier(name="b", guarantee=0.5)), {"a": 6}),
        ((Tier(name="a", non_preemptible_workers=9), Tier(name="b", guarantee=0.3)), {"a": 7}),
        ((Tier(name="a", non_preemptible_workers=1), Tier(name="b", guarantee=1.0)), {"a": 0}),
        ((Tier(name="a", guarantee=0.9, non_preemptible_workers=12), Tier(name="b")), {}),
        (
            (
                Tier(name="lab", guarantee=0.25, non_preemptible_workers=10),
                Tier(name="a", parent="lab", non_preemptible_workers=10),
                Tier(name="b", parent="lab", guarantee=0.25),
                Tier(name="gold", guarantee=0.25, parent="gone", non_preemptible_workers=10),
                Tier(name="below", guarantee=0.25, parent="gold"),
            ),
            {"lab": 9, "a": 6, "gold": 9},
        ),
    ],
    ids=["no guarantee", "just enough", "more", "whole workers", "nothing is left", "its own does not count", "a tree"],
)
def test_a_limit_is_beyond_what_guarantees_of_others_leave_on_all_types(
    tiers: tuple[Tier, ...], beyond: dict[str, int]
) -> None:
    assert beyond_guarantees({tier.name: tier for tier in tiers}, CAPACITY) == beyond


def test_a_part_of_the_workers_that_is_a_whole_number_but_for_rounding_is_that_number() -> None:
    assert (1.0 - 0.9) * 10 < 1.0
    tiers = {"a": Tier(name="a", non_preemptible_workers=1), "b": Tier(name="b", guarantee=0.9)}
    assert beyond_guarantees(tiers, {"fast": 10}) == {}
