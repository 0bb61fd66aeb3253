"""A cluster's layout, and the very workers that gangs get, keep, give up or gather on."""

from collections.abc import Mapping

import numpy as np
import pytest

from gavel.mechanism.cluster.feasibility import Workers
from gavel.mechanism.cluster.packing import Gang
from gavel.mechanism.cluster.placement import Layout, place
from gavel.types import NO_NEEDS, Cluster, Needs, Node, Used, Worker
from tests.mechanism.test_placement import a_layout, ids
from tests.mechanism.world import a_cluster_of_nodes

MIXED = a_cluster_of_nodes(n0="slow fast", n1="fast fast", n2="slow")


def test_a_layout_has_the_workers_of_each_type_in_the_order_of_the_cluster() -> None:
    layout = Layout(MIXED)
    assert layout.types == ("fast", "slow")
    assert (layout.capacity.tolist(), layout.capacity.dtype) == ([3, 2], np.dtype(np.int64))
    assert dict(layout.capacity_workers) == {"fast": 3, "slow": 2}
    assert layout.workers_of == {"fast": ["n0-1", "n1-0", "n1-1"], "slow": ["n0-0", "n2-0"]}
    assert layout.node_of == {worker.id: worker.node for worker in MIXED.workers}
    assert layout.type_of == {worker.id: worker.accelerator_type for worker in MIXED.workers}
    assert (layout.nodes(("n0-0", "n0-1")), layout.nodes(("n0-0", "n1-1")), layout.nodes(())) == (1, 2, 0)


def test_the_fewest_nodes_are_counted_by_type() -> None:
    layout = Layout(MIXED)
    assert [layout.fewest_nodes("fast", size) for size in (1, 2, 3, 4)] == [1, 1, 2, 3]
    assert [layout.fewest_nodes("slow", size) for size in (1, 2)] == [1, 2]


def test_what_gangs_use_of_nodes_is_in_no_room_of_the_layout() -> None:
    cluster = Cluster(nodes=(Node(name="n0", cpu_cores=4),), workers=MIXED.workers[:2])
    used = {"n0": Used(workers=1, cpu_cores=3)}
    layout = Layout(cluster, used)
    assert (layout.used, layout.feasibility.used, Layout(cluster).used) == (used, used, {})
    assert (layout.room().cores.tolist(), Layout(cluster).room().cores.tolist()) == ([1.0], [4.0])
    assert layout.feasibility is layout.feasibility


@pytest.mark.parametrize(
    ("workers", "size", "expected"),
    [
        (("n0-1",), 1, True),
        (("n0-0",), 1, False),
        (("gone",), 1, False),
        (("n0-1", "n1-0"), 1, False),
        ((), 1, False),
        (("n0-1", "n1-0"), 2, True),
        (("n0-1", "n0-0"), 2, False),
        (("n0-1", "gone"), 2, False),
        (("n0-1", "n1-0", "n1-1"), 2, False),
        (("n1-0",), 2, False),
    ],
)
def test_a_gang_is_as_many_workers_of_its_type_as_it_has_ranks(workers: Workers, size: int, expected: bool) -> None:
    assert Layout(MIXED).is_gang(workers, "fast", size) is expected


# --- new gangs ---


def test_larger_gangs_come_first_and_of_equal_ones_the_first_row() -> None:
    gangs: list[Gang] = [(4, "fast", 1), (2, "fast", 2), (1, "fast", 1), (3, "fast", 2), (0, "fast", 3)]
    assert place(gangs, a_layout(3, 4, 2), {}) == {
        0: ids(0, 0, 1, 2),
        2: ids(2, 0, 1),
        3: ids(1, 0, 1),
        1: ids(1, 2),
        4: ids(1, 3),
    }


def test_a_smaller_gang_takes_no_node_that_just_holds_a_larger_one() -> None:
    gangs: list[Gang] = [(0, "fast", 2), (1, "fast", 3)]
    assert place(gangs, a_layout(4, 3), {}) == {1: ids(1, 0, 1, 2), 0: ids(0, 0, 1)}


def test_single_workers_are_used_up_node_by_node_the_tightest_first() -> None:
    held = {9: ids(1, 1)}
    gangs: list[Gang] = [(9, "fast", 1), *((row, "fast", 1) for row in range(5))]
    placed = place(gangs, a_layout(3, 3, 2), held)
    assert [placed[row] for row in range(5)] == [ids(1, 0), ids(1, 2), ids(2, 0), ids(2, 1), ids(0, 0)]


def test_gangs_of_two_types_do_not_meet() -> None:
    gangs: list[Gang] = [(0, "slow", 2), (1, "fast", 1), (2, "fast", 2)]
    assert place(gangs, Layout(MIXED), {}) == {0: ("n0-0", "n2-0"), 2: ("n1-0", "n1-1"), 1: ("n0-1",)}


def test_a_node_that_is_used_up_is_not_looked_at_again() -> None:
    """1 row 0 takes n1 whole, 2 row 1 takes n2 whole, 3 row 2 takes what is left of both others."""
    gangs: list[Gang] = [(0, "fast", 4), (1, "fast", 3), (2, "fast", 2)]
    assert place(gangs, a_layout(1, 4, 3, 1), {}) == {
        0: ids(1, 0, 1, 2, 3),
        1: ids(2, 0, 1, 2),
        2: (*ids(0, 0), *ids(3, 0)),
    }


def test_more_than_there_is_cannot_be_asked_for() -> None:
    with pytest.raises(AssertionError, match=r"^1 more workers were chosen than are free$"):
        place([(0, "fast", 3)], a_layout(1, 1), {})


# --- gangs that stay or part ---


def test_a_pair_that_ends_leaves_its_workers_to_one_and_a_gang_of_another_size_moves() -> None:
    held = {0: ids(0, 0, 1), 1: ids(0, 0, 1), 2: ids(1, 0)}
    gangs: list[Gang] = [(0, "fast", 2), (1, "fast", 2), (2, "fast", 2)]
    assert place(gangs, a_layout(2, 2, 2), held) == {0: ids(0, 0, 1), 1: ids(1, 0, 1), 2: ids(2, 0, 1)}


def test_a_pair_that_goes_on_stays_before_jobs_that_part_from_others() -> None:
    """The pair of 0 and 1 shared worker 0 before; job 2, which shared it too by then, has to move."""
    held = {0: ids(0, 0), 1: ids(0, 0), 2: ids(0, 0)}
    gangs: list[Gang] = [(2, "fast", 1), (5, "fast", 1)]
    assert place(gangs, a_layout(3), held, pairs={5: (0, 1)}) == {5: ids(0, 0), 2: ids(0, 1)}


def test_a_pair_that_begins_takes_the_workers_of_either_of_its_jobs() -> None:
    held = {0: ids(0, 2), 1: ids(0, 1)}
    gangs: list[Gang] = [(5, "fast", 1)]
    assert place(gangs, a_layout(3), held, pairs={5: (0, 1)}) == {5: ids(0, 2)}
    assert place(gangs, a_layout(3), {1: ids(0, 1)}, pairs={5: (0, 1)}) == {5: ids(0, 1)}
    assert place([*gangs, (1, "fast", 1)], a_layout(3), held, pairs={5: (0, 1)}) == {5: ids(0, 2), 1: ids(0, 1)}


def test_a_pair_whose_jobs_held_nothing_is_placed_anew_beside_one_that_stays() -> None:
    held = {0: ids(0, 1), 1: ids(0, 1)}
    gangs: list[Gang] = [(5, "fast", 1), (6, "fast", 1)]
    assert place(gangs, a_layout(3), held, pairs={5: (0, 1), 6: (2, 3)}) == {5: ids(0, 1), 6: ids(0, 0)}


def test_as_many_gangs_as_possible_stay_where_three_want_the_workers_of_two() -> None:
    """Row 6 could have either, row 0 and row 3 only one each: both stay, and the pair moves."""
    held = {0: ids(0, 0, 1), 1: ids(0, 0, 1), 2: ids(1, 0, 1), 3: ids(1, 0, 1)}
    gangs: list[Gang] = [(6, "fast", 2), (0, "fast", 2), (3, "fast", 2)]
    placed = place(gangs, a_layout(3, 3, 2, 2), held, pairs={6: (1, 2)})
    assert sorted(placed.values()) == [ids(0, 0, 1), ids(1, 0, 1), ids(2, 0, 1)]


# --- gathering ---


@pytest.mark.parametrize(
    ("nodes", "held", "size", "gathered"),
    [
        ((2, 2), (*ids(0, 0), *ids(1, 0)), 2, ids(0, 0, 1)),
        ((3, 2, 1), (*ids(0, 0), *ids(1, 0), *ids(2, 0)), 3, ids(0, 0, 1, 2)),
        ((2, 2, 1), (*ids(0, 0), *ids(1, 0), *ids(2, 0)), 3, (*ids(0, 0, 1), *ids(2, 0))),
        ((1, 1, 1), (*ids(1, 0), *ids(2, 0)), 2, (*ids(1, 0), *ids(2, 0))),
        ((4,), ids(0, 0, 3), 2, ids(0, 0, 3)),
        ((3, 3), (*ids(0, 0), *ids(1, 0, 1)), 3, ids(0, 0, 1, 2)),
        ((2, 2, 2), (*ids(1, 0), *ids(2, 0, 1)), 3, (*ids(1, 0), *ids(2, 0, 1))),
    ],
)
def test_a_gang_gathers_on_fewer_nodes_where_there_is_room(
    nodes: tuple[int, ...], held: Workers, size: int, gathered: Workers
) -> None:
    layout = a_layout(*nodes)
    assert place([(0, "fast", size)], layout, {0: held}, gathers={0}) == {0: gathered}
    assert place([(0, "fast", size)], layout, {0: held}) == {0: held}


def test_larger_gangs_are_placed_before_others_gather_and_single_workers_after() -> None:
    held = {0: (*ids(0, 0), *ids(1, 0))}
    gangs: list[Gang] = [(0, "fast", 2), (1, "fast", 1), (2, "fast", 2)]
    assert place(gangs, a_layout(2, 2, 2), held, gathers={0}) == {0: ids(0, 0, 1), 1: ids(1, 0), 2: ids(2, 0, 1)}
    assert place(gangs, a_layout(2, 3), held, gathers={0}) == {0: ids(0, 0, 1), 1: ids(1, 0), 2: ids(1, 1, 2)}


def test_what_a_gang_has_left_by_gathering_is_there_for_the_next() -> None:
    held = {0: (*ids(0, 0), *ids(1, 0)), 1: (*ids(1, 1), *ids(2, 0))}
    gangs: list[Gang] = [(0, "fast", 2), (1, "fast", 2)]
    assert place(gangs, a_layout(2, 2, 1), held, gathers={0, 1}) == {0: ids(0, 0, 1), 1: ids(1, 1, 0)}


# --- gangs that need more than workers ---

CORES = Cluster(
    nodes=(Node(name="n0", cpu_cores=2), Node(name="n1", cpu_cores=8)),
    workers=tuple(
        Worker(id=f"{node}-{index}", node=node, accelerator_type="fast") for node in ("n0", "n1") for index in range(2)
    ),
)


@pytest.mark.parametrize(
    ("needs", "worth", "expected"),
    [
        ({0: Needs(cpu_cores=4)}, {}, {0: ("n1-0",), 1: ("n1-1",)}),
        ({0: Needs(cpu_cores=9)}, {}, {1: ("n0-0",)}),
        ({0: Needs(cpu_cores=8), 1: Needs(cpu_cores=8)}, {1: 2.0}, {1: ("n1-0",)}),
        ({0: Needs(cpu_cores=8), 1: Needs(cpu_cores=8)}, {0: 2.0}, {0: ("n1-0",)}),
    ],
)
def test_gangs_with_needs_are_placed_by_cores_and_the_worthiest_where_not_all_fit(
    needs: Mapping[int, Needs], worth: Mapping[int, float], expected: Mapping[int, Workers]
) -> None:
    gangs: list[Gang] = [(0, "fast", 1), (1, "fast", 1)]
    assert place(gangs, Layout(CORES), {}, needs=needs, worth=worth) == expected


def test_where_gangs_use_nodes_already_those_without_needs_are_placed_by_cores_too() -> None:
    used = {"n0": Used(cpu_cores=2), "n1": Used(cpu_cores=7)}
    gangs: list[Gang] = [(0, "fast", 1), (1, "fast", 1)]
    assert place(gangs, Layout(CORES, used), {}) == {0: ("n1-0",)}
    assert place(gangs, Layout(CORES), {}, needs={}) == {0: ("n0-0",), 1: ("n0-1",)}
    assert place(gangs, Layout(CORES), {}, needs={7: NO_NEEDS}) == {0: ("n0-0",), 1: ("n0-1",)}


def test_gangs_with_needs_stay_or_gather_as_others_do() -> None:
    held = {0: ("n0-1", "n1-1"), 1: ("n1-0",)}
    gangs: list[Gang] = [(0, "fast", 2), (1, "fast", 1)]
    needs = {1: Needs(cpu_cores=2)}
    assert place(gangs, Layout(CORES), held, needs=needs) == held
    gathered = place(gangs, Layout(CORES), held, needs=needs, gathers={0})
    assert gathered == {0: ("n0-1", "n0-0"), 1: ("n1-0",)}
    pinned = place(
        [(2, "fast", 1), (1, "fast", 1)],
        Layout(CORES),
        {1: ("n1-0",)},
        needs={1: Needs(cpu_cores=8), 2: Needs(cpu_cores=8)},
        worth={2: 9.0},
        pinned={1},
    )
    assert pinned == {1: ("n1-0",)}
