"""Which gangs get a place where not all fit, and who keeps, moves or gathers: whole answers on small nodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.cluster.feasibility import Room, Workers
from gavel.mechanism.cluster.packing import PackingProblem, pack
from gavel.types import Cluster, Needs, Node, Worker
from tests.mechanism.test_packing import an_instance

SEEDS = 60


def a_room(*nodes: tuple[int, int]) -> Room:
    """(workers of type a, cores) of nodes n0, n1, ..; cores 0: as many as anybody wants."""
    return Room(
        Cluster(
            nodes=tuple(Node(name=f"n{index}", cpu_cores=cores) for index, (_, cores) in enumerate(nodes)),
            workers=tuple(
                Worker(id=f"n{index}-{slot}", node=f"n{index}", accelerator_type="a")
                for index, (count, _) in enumerate(nodes)
                for slot in range(count)
            ),
        ),
        {},
    )


def packed(
    *nodes: tuple[int, int], sizes: Mapping[int, int], cores: Mapping[int, int] | None = None, **over: Any
) -> dict[int, Workers]:
    """The answer for gangs of these sizes by row, whose ranks need these cores."""
    return pack(
        PackingProblem(
            gangs=[(row, "a", size) for row, size in sizes.items()],
            new_room=lambda: a_room(*nodes),
            needs={row: Needs(cpu_cores=(cores or {}).get(row, 1)) for row in sizes},
            **over,
        )
    )


def test_gangs_that_hold_workers_keep_them_where_all_fit() -> None:
    """Row 1 would be placed first by its size, and on the workers that row 0 holds."""
    staying = {0: ("n0-0",), 2: ("n1-1",)}
    answer = packed((3, 0), (3, 0), sizes={0: 1, 1: 3, 2: 1}, staying=staying)
    assert answer == {0: ("n0-0",), 2: ("n1-1",), 1: ("n0-1", "n0-2", "n1-0")}


def test_gangs_move_only_if_the_others_find_no_place_otherwise() -> None:
    """On n0 the large gang needs all cores: the small one, which is there, moves to n1, which it alone can use."""
    answer = packed((2, 4), (1, 1), sizes={0: 1, 1: 2}, cores={1: 2}, staying={0: ("n0-0",)})
    assert answer == {0: ("n1-0",), 1: ("n0-0", "n0-1")}


def test_a_gang_that_found_no_place_chooses_first_and_those_that_hold_workers_stay_still() -> None:
    """1 row 1 takes n0, whose cores row 2 needs, 2 row 2 chooses first: row 1 is on both nodes, and row 0 stays."""
    answer = packed((2, 8), (2, 2), sizes={0: 1, 1: 2, 2: 1}, cores={2: 4}, staying={0: ("n1-0",)})
    assert answer == {2: ("n0-0",), 0: ("n1-0",), 1: ("n0-1", "n1-1")}


def test_a_gang_that_is_pinned_stays_whatever_it_costs_the_others() -> None:
    """Also one that holds no workers yet is placed before all others."""
    answer = packed((2, 4), (1, 1), sizes={0: 1, 1: 2}, cores={1: 2}, staying={0: ("n0-0",)}, pinned={0})
    assert answer == {0: ("n0-0",)}
    beside_it = packed((3, 0), sizes={0: 1, 1: 1, 2: 1}, staying={0: ("n0-1",)}, pinned={0})
    assert beside_it == {0: ("n0-1",), 1: ("n0-0",), 2: ("n0-2",)}
    new = packed((2, 0), sizes={0: 2, 1: 1}, pinned={1}, worth={0: 9.0})
    assert new == {1: ("n0-0",)}


def test_a_gang_whose_workers_are_not_enough_for_it_any_more_is_placed_anew() -> None:
    answer = packed((2, 2), (2, 8), sizes={0: 2}, cores={0: 2}, staying={0: ("n0-0", "n0-1")})
    assert answer == {0: ("n1-0", "n1-1")}


def test_of_gangs_that_do_not_all_fit_those_that_are_worth_most_together_are_placed() -> None:
    assert packed((2, 0), sizes={0: 2, 1: 2}, worth={0: 1.0, 1: 1.5}) == {1: ("n0-0", "n0-1")}
    assert packed((3, 0), sizes={0: 3, 1: 1, 2: 2}, worth={0: 2.5}) == {0: ("n0-0", "n0-1", "n0-2")}
    assert packed((3, 0), sizes={0: 3, 1: 1, 2: 2}, worth={0: 1.5}) == {1: ("n0-0",), 2: ("n0-1", "n0-2")}


def test_a_gang_that_fits_on_no_node_is_left_out_and_the_others_are_placed() -> None:
    worth = {0: 9.0, 1: 9.0}
    answer = packed((2, 2), sizes={0: 1, 1: 1, 2: 1, 3: 1}, cores={0: 9, 1: 9, 2: 1, 3: 1}, worth=worth)
    assert answer == {2: ("n0-0",), 3: ("n0-1",)}


def test_a_large_gang_that_finds_no_place_keeps_no_smaller_one_from_one() -> None:
    answer = packed((4, 0), sizes={0: 8, 1: 2, 2: 2})
    assert answer == {1: ("n0-0", "n0-1"), 2: ("n0-2", "n0-3")}


Wanted = Mapping[int, tuple[int, Needs]]
"""Size and needs of each row."""


def worth_in_turn(cluster: Cluster, gangs: Wanted, worth: Mapping[int, float], exponent: float | None) -> float:
    """What is placed if each gang takes a place in its turn: by its part of all there is for it, or worth for that."""
    room = Room(cluster, {})
    part = {row: size / max(1, int(room.ranks("a", needs).sum())) for row, (size, needs) in gangs.items()}
    before = {row: -part[row] if exponent is None else -worth[row] / part[row] ** exponent for row in gangs}
    order = sorted(sorted(gangs, key=lambda row: -part[row]), key=lambda row: before[row])
    return sum(worth[row] for row in order if room.take("a", gangs[row][1], gangs[row][0]) is not None)


def worth_of_answer(cluster: Cluster, gangs: Wanted, worth: Mapping[int, float]) -> float:
    problem = PackingProblem(
        gangs=[(row, "a", size) for row, (size, _) in gangs.items()],
        new_room=lambda: Room(cluster, {}),
        needs={row: needs for row, (_, needs) in gangs.items()},
        worth=worth,
    )
    return sum(worth[row] for row in pack(problem))


@pytest.mark.parametrize("exponent", [None, 0.5, 1.0, 1.5])
def test_no_simple_order_of_the_gangs_places_more_worth_than_the_answer(exponent: float | None) -> None:
    for seed in range(SEEDS):
        cluster, gangs = an_instance(seed)
        draw = np.random.default_rng(seed)
        worth = {row: float(size * draw.uniform(0.2, 2.0)) for row, (size, _) in gangs.items()}
        least = worth_in_turn(cluster, gangs, worth, exponent) - 1e-9
        assert worth_of_answer(cluster, gangs, worth) >= least


def test_nothing_is_placed_for_nobody() -> None:
    assert packed((2, 0), sizes={}) == {}


# --- gathering ---

SPREAD = ("n0-0", "n1-0")


@pytest.mark.parametrize(
    ("nodes", "gathers", "expected"),
    [
        ([(2, 0), (2, 0)], {0}, ("n0-0", "n0-1")),
        ([(2, 0), (2, 0)], set(), SPREAD),
        ([(2, 0), (2, 0)], {1}, SPREAD),
        ([(1, 0), (1, 0), (2, 0)], {0}, ("n2-0", "n2-1")),
        ([(1, 0), (1, 0), (1, 0)], {0}, SPREAD),
        ([(2, 2), (2, 2)], {0}, SPREAD),
    ],
)
def test_a_gang_over_two_nodes_gathers_on_one_if_it_may_and_there_is_room(
    nodes: list[tuple[int, int]], gathers: set[int], expected: Workers
) -> None:
    answer = packed(*nodes, sizes={0: 2}, cores={0: 2}, staying={0: SPREAD}, gathers=gathers)
    assert answer == {0: expected}


def test_gangs_gather_one_after_the_other_in_what_those_before_have_left() -> None:
    """1 row 0 takes n0, which row 1 shares with it, 2 row 1 is on two nodes still, and n1 has room for it now."""
    staying = {0: ("n0-0", "n1-0"), 1: ("n1-1", "n2-0")}
    answer = packed((2, 0), (2, 0), (1, 0), sizes={0: 2, 1: 2}, staying=staying, gathers={0, 1})
    assert answer == {0: ("n0-0", "n0-1"), 1: ("n1-1", "n1-0")}


def test_a_gang_that_would_be_on_as_many_nodes_elsewhere_stays_and_keeps_its_workers_from_others() -> None:
    """Row 0 could move to n0 and n1, two nodes as before; row 1 would fit on n3 only without row 0."""
    staying = {0: ("n1-0", "n3-0"), 1: ("n2-0", "n3-1")}
    nodes = ((1, 0), (1, 0), (1, 0), (2, 3))
    answer = packed(*nodes, sizes={0: 2, 1: 2}, cores={0: 2}, staying=staying, gathers={0, 1})
    assert answer == staying


def test_a_gang_on_one_node_does_not_move_within_it() -> None:
    staying = {0: ("n0-2", "n0-1")}
    assert packed((3, 0), (2, 0), sizes={0: 2}, staying=staying, gathers={0}) == staying


def test_needs_of_each_row_are_its_own() -> None:
    """Rows of the same type and size that need different cores are not taken for each other."""
    answer = packed((2, 3), (1, 8), sizes={0: 1, 1: 1, 2: 1}, cores={0: 8, 1: 2, 2: 1})
    assert answer == {0: ("n1-0",), 1: ("n0-0",), 2: ("n0-1",)}
