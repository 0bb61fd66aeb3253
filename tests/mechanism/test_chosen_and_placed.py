"""Gangs that were chosen and for which no node has room: who goes instead, and what is charged."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.placing import chosen_and_placed, gathers, needs_of, together
from gavel.mechanism.planning.selection import SelectionProblem
from gavel.types import NO_NEEDS, Cluster, Needs, Node, Worker
from tests.mechanism.test_selection import a_packed_standing, a_selection

LARGE = Needs(cpu_cores=8)  # more than any node has
Outcome = tuple[dict[int, int], list[list[float]], dict[int, tuple[str, ...]]]
"""The column of each row that goes, the ledger after the round, and the workers of each row."""


def a_layout(**nodes: str) -> Layout:
    """`a_layout(n0="fast fast")` has workers n0-0 and n0-1 of type fast; each node has four cores."""
    workers = tuple(
        Worker(id=f"{name}-{index}", node=name, accelerator_type=kind)
        for name, kinds in nodes.items()
        for index, kind in enumerate(kinds.split())
    )
    return Layout(Cluster(nodes=tuple(Node(name=name, cpu_cores=4) for name in nodes), workers=workers))


def outcome(
    selection: SelectionProblem, layout: Layout, needs: Sequence[Needs], held: dict[int, tuple[str, ...]] | None = None
) -> Outcome:
    chosen, ledger, placed = chosen_and_placed(selection, layout, held or {}, needs)
    return chosen, ledger.round(3).tolist(), placed


def test_where_nobody_needs_more_than_workers_all_that_are_chosen_are_placed() -> None:
    selection = a_selection([[0.5], [0.25]], [2], scale_factor=np.array([1, 1]))
    assert outcome(selection, a_layout(n0="fast fast"), ()) == (
        {0: 0, 1: 0},
        [[-0.5], [-0.75]],
        {0: ("n0-0",), 1: ("n0-1",)},
    )


def test_another_job_goes_instead_of_one_for_which_no_node_has_room_and_that_one_is_not_charged() -> None:
    selection = a_selection([[0.9], [0.5], [0.25]], [1])
    assert outcome(selection, a_layout(n0="fast"), [LARGE, NO_NEEDS, NO_NEEDS]) == (
        {1: 0},
        [[0.9], [-0.5], [0.25]],
        {1: ("n0-0",)},
    )


def test_a_job_without_room_on_one_type_goes_on_another() -> None:
    layout = a_layout(n0="fast fast", n1="slow")
    selection = a_selection([[0.9, 0.1], [0.5, 0.0]], [2, 1], scale_factor=np.array([1, 2]))
    assert outcome(selection, layout, [Needs(nodes=("n1",)), NO_NEEDS]) == (
        {1: 0, 0: 1},
        [[0.9, -0.9], [-0.5, 0.0]],
        {0: ("n1-0",), 1: ("n0-0", "n0-1")},
    )


def test_a_pair_without_room_makes_way_and_its_jobs_go_alone() -> None:
    """Each needs three of the four cores; together they need all but two more."""
    selection = a_packed_standing([(0, 1)], [[0.5]], [[0.25], [0.0], [0.1]], [1])
    assert outcome(selection, a_layout(n0="fast"), [Needs(cpu_cores=3)] * 3) == (
        {0: 0},
        [[-0.25], [0.5], [0.1]],
        {0: ("n0-0",)},
    )


def test_a_pair_needs_what_both_of_its_jobs_need() -> None:
    selection = a_packed_standing([(0, 1)], [[0.5]], [[0.0], [0.0], [0.1]], [1])
    needs = [Needs(cpu_cores=1), Needs(cpu_cores=2), NO_NEEDS]
    assert outcome(selection, a_layout(n0="fast"), needs) == (
        {3: 0},
        [[-0.5], [-0.5], [0.1]],
        {3: ("n0-0",)},
    )
    assert together([Needs(cpu_cores=1)]) == Needs(cpu_cores=1)
    assert together([Needs(cpu_cores=1), Needs(cpu_cores=2)]) == Needs(cpu_cores=1).colocated_with(Needs(cpu_cores=2))


def test_pairs_stay_on_their_workers_and_each_is_charged_to_its_own_jobs() -> None:
    selection = a_packed_standing(
        [(0, 1), (2, 3)], [[0.5], [0.25]], np.zeros((4, 1)), [2], kept=np.zeros(4, dtype=np.int64)
    )
    held: dict[int, tuple[str, ...]] = {0: ("n0-1",), 1: ("n0-1",), 2: ("n0-0",), 3: ("n0-0",)}
    assert outcome(selection, a_layout(n0="fast fast"), (), held) == (
        {4: 0, 5: 0},
        [[-0.5], [-0.5], [-0.75], [-0.75]],
        {4: ("n0-1",), 5: ("n0-0",)},
    )


@pytest.mark.parametrize(("pinned", "workers"), [((0,), {0: "n0-0", 1: "n0-1"}), ((1,), {0: "n0-1", 1: "n0-0"})])
def test_of_two_that_shared_a_worker_the_one_that_is_pinned_stays_there(
    pinned: tuple[int, ...], workers: dict[int, str]
) -> None:
    selection = a_selection([[0.5], [0.5]], [2], kept=np.zeros(2, dtype=np.int64), pinned=pinned)
    _, _, placed = outcome(selection, a_layout(n0="fast fast"), (), {0: ("n0-0",), 1: ("n0-0",)})
    assert placed == {row: (name,) for row, name in workers.items()}


@pytest.mark.parametrize("over", [{"profiling": ((0, 0),)}, {"pinned": (0,), "kept": np.array([0, -1])}])
def test_one_that_is_profiled_or_pinned_and_has_no_room_makes_way_as_well(over: dict[str, Any]) -> None:
    selection = a_selection([[0.0], [0.5]], [1], **over)
    assert outcome(selection, a_layout(n0="fast"), [LARGE, NO_NEEDS]) == ({1: 0}, [[0.0], [-0.5]], {1: ("n0-0",)})


def test_others_are_still_profiled_and_pinned_when_one_made_way() -> None:
    fields: dict[str, Any] = {"profiling": ((2, 0), (0, 0)), "pinned": (1,), "kept": np.array([-1, 0, -1, -1])}
    selection = a_selection([[0.0], [0.0], [0.0], [0.9]], [2], **fields)
    needs = [NO_NEEDS, NO_NEEDS, LARGE, NO_NEEDS]
    assert outcome(selection, a_layout(n0="fast fast"), needs, {1: ("n0-1",)}) == (
        {1: 0, 0: 0},
        [[0.0], [-1.0], [0.0], [0.9]],
        {1: ("n0-1",), 0: ("n0-0",)},
    )


def test_one_that_is_pinned_keeps_its_cores_though_another_one_is_worth_more() -> None:
    selection = a_selection([[0.0], [0.9]], [2], kept=np.array([0, -1]), pinned=(0,))
    needs = [Needs(cpu_cores=3), Needs(cpu_cores=3)]
    assert outcome(selection, a_layout(n0="fast fast"), needs, {0: ("n0-0",)}) == (
        {0: 0},
        [[-1.0], [0.9]],
        {0: ("n0-0",)},
    )


def test_types_stay_in_their_order_when_a_job_made_way() -> None:
    """By the published rule the second type comes first; without job 0 the first type would look faster."""
    rates = np.array([[1.0, 9.0], [1.0, 0.9], [1.0, 0.9]])
    selection = a_selection([[0.9, 0.9], [0.5, 0.5], [0.4, 0.4]], [1, 1], rates=rates, planner="published")
    needs = [LARGE, NO_NEEDS, NO_NEEDS]
    assert outcome(selection, a_layout(n0="fast", n1="slow"), needs)[0] == {1: 1, 2: 0}
    other = replace(selection, fastest_first=(0, 1))
    assert outcome(other, a_layout(n0="fast", n1="slow"), needs)[0] == {1: 0, 2: 1}


def test_after_eight_choices_workers_stay_idle_and_nobody_is_charged() -> None:
    """The last choice is job 7; the ledger of the others is what they lag."""
    claims = [[0.9 - 0.05 * row] for row in range(10)]
    selection = a_selection(claims, [1])
    expected: Outcome = ({}, [[0.9 - 0.05 * row] if row != 7 else [0.0] for row in range(10)], {})
    chosen, ledger, placed = outcome(selection, a_layout(n0="fast"), [LARGE] * 8 + [NO_NEEDS] * 2)
    assert (chosen, placed) == ({}, {}) and ledger == [pytest.approx(row) for row in expected[1]]


def test_a_pair_that_is_the_last_choice_is_not_charged() -> None:
    """Seven jobs before it have no room, either."""
    alone = [[0.9 - 0.05 * row] for row in range(7)] + [[0.0], [0.0]]
    lags = np.zeros((9, 1))
    lags[7:, 0] = (-0.75, 0.25)
    selection = a_packed_standing([(7, 8)], [[0.1]], alone, [1], ledger=lags)
    chosen, ledger, placed = outcome(selection, a_layout(n0="fast"), [LARGE] * 9)
    assert (chosen, placed) == ({}, {}) and ledger[7:] == [[-0.75], [0.25]]


# --- who is placed if not all can be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "lag", "over", "expected"),
    [
        ([0.2, 0.6], [0.0, 0.0], {}, [1]),
        ([0.6, 0.2], [0.0, 0.0], {}, [0]),
        ([0.6, 0.2], [0.1, 0.8], {}, [1]),
        ([0.6, 0.2], [0.1, 0.8], {"planner": "published", "is_new_allocation": False}, [0]),
        ([0.2, 0.6], [0.0, -9.0], {"late": ((1, 0),)}, [1]),
        ([0.3, 0.5], [0.0, 0.0], {"scale_factor": np.array([2, 1])}, [0]),
        ([0.2, 0.6], [0.0, 0.0], {"scale_factor": np.array([2, 1])}, [1]),
        ([0.2, 0.6], [0.0, 0.0], {"scale_factor": np.array([2, 1]), "planner": "published"}, [1]),
    ],
    ids=[
        "by the fraction",
        "either way",
        "and the lag",
        "unless the rule is the published one",
        "not below 0",
        "size",
        "not only",
        "nor then",
    ],
)
def test_of_two_that_do_not_fit_together_the_one_goes_that_is_worth_more(
    target: list[float], lag: list[float], over: dict[str, Any], expected: list[int]
) -> None:
    """Each needs more than half of the node's cores."""
    needs = [Needs(cpu_cores=3), Needs(cpu_cores=3)]
    if "scale_factor" in over:
        needs = [Needs(cpu_cores=2), Needs(cpu_cores=4)]
    selection = a_selection([[each] for each in target], [3], ledger=np.array(lag)[:, None], **over)
    chosen, _, placed = outcome(selection, a_layout(n0="fast fast fast"), needs)
    assert (list(chosen), list(placed)) == (expected, expected)


@pytest.mark.parametrize(("lags", "expected"), [([0.0, 0.9], [3]), ([0.9, 0.0], [3]), ([0.0, 0.0], [2])])
def test_a_pair_is_worth_as_much_as_the_one_of_its_jobs_that_is_worth_more(
    lags: list[float], expected: list[int]
) -> None:
    ledger = np.array([[lags[0]], [lags[1]], [0.2]])
    selection = a_packed_standing([(0, 1)], [[0.1]], [[0.0], [0.0], [0.5]], [2], ledger=ledger)
    needs = [Needs(cpu_cores=2), Needs(cpu_cores=2), Needs(cpu_cores=3)]
    chosen, _, placed = outcome(selection, a_layout(n0="fast fast"), needs)
    assert (list(chosen), list(placed)) == (expected, expected)


# --- who may move to fewer nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, {1, 2}),
        ({"stay_rounds": np.array([0.0, 0.0, 0.44])}, {1, 2}),
        ({"stay_rounds": np.array([0.0, 0.46, 0.44])}, {2}),
        ({"pinned": (1,)}, {2}),
        ({"planner": "published"}, set()),
        ({"planner": "published_shuffled"}, set()),
    ],
)
def test_gangs_of_several_workers_move_to_fewer_nodes_where_that_costs_a_tenth_of_a_round_at_most(
    over: dict[str, Any], expected: set[int]
) -> None:
    sizes = np.array([1, 2, 4], dtype=np.int64)
    assert gathers(a_selection(np.zeros((3, 1)), [9], scale_factor=sizes, **over)) == expected


@pytest.mark.parametrize(
    ("over", "workers"),
    [
        ({}, ("n1-0", "n1-1")),
        ({"stay_rounds": np.array([1.0])}, ("n0-0", "n1-0")),
        ({"pinned": (0,)}, ("n0-0", "n1-0")),
        ({"planner": "published"}, ("n0-0", "n1-0")),
    ],
)
@pytest.mark.parametrize("needs", [(), [Needs(cpu_cores=2)]], ids=["workers", "cores"])
def test_a_gang_over_two_nodes_goes_on_on_one_if_that_costs_little(
    over: dict[str, Any], workers: tuple[str, ...], needs: Sequence[Needs]
) -> None:
    fields = {"scale_factor": np.array([2], dtype=np.int64), "kept": np.array([0]), **over}
    selection = a_selection([[0.5]], [3], **fields)
    assert outcome(selection, a_layout(n0="fast", n1="fast fast"), needs, {0: ("n0-0", "n1-0")})[2] == {0: workers}


def test_needs_are_left_out_where_nobody_needs_more_than_a_worker() -> None:
    assert needs_of([NO_NEEDS, NO_NEEDS]) == () and needs_of([]) == ()
    assert needs_of([NO_NEEDS, LARGE]) == [NO_NEEDS, LARGE]
