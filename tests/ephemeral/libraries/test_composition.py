"""Libraries in one expression, and soft constraints that let go after a time."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.ephemeral import GangRequest, InProcess, Member, match
from gavel.ephemeral.libraries import (
    Alternative,
    AntiAffinity,
    CoLocation,
    DataLocality,
    FairSharing,
    LoadBalancing,
    Priority,
    Queue,
    Share,
    Soft,
    Write,
    compose,
)
from gavel.ephemeral.libraries.primitives import ABSENT, UNBOUNDED, Seen
from gavel.ephemeral.names import CAPACITY_MAX
from gavel.ephemeral.resources import Fallback
from gavel.errors import InvalidResource, NotFound, StaleVersion
from tests.ephemeral.libraries.scene import a_scene, histories, load

ROOM = Path(__file__).parents[3] / "gavel" / "ephemeral" / "libraries"
CPU = {"node/cpu": 1}


def test_the_papers_composition_spreads_pairs_evenly_and_keeps_each_on_one_node() -> None:
    scene = a_scene(a=9, b=9)
    pairs = [
        compose(LoadBalancing("app/lb", CPU, together=2), CoLocation(f"app/pair-{index}", CPU, 2)) for index in range(4)
    ]
    for index, library in enumerate(pairs):
        scene.submit(f"pair{index}", library, tasks=2)
    scene.settle(*pairs)
    assert load(scene.running) == {"a": 4, "b": 4}
    assert all(len(set(nodes)) == 1 for nodes in scene.running.values())


def test_a_task_asks_the_sum_of_what_each_library_asks() -> None:
    both = compose(AntiAffinity("app/x"), compose(AntiAffinity("app/x"), DataLocality("app/y", ())))
    assert both.asks() == (Alternative({"app/x": 2, "app/y": 1}),)
    assert compose().asks() == (Alternative({}),)


def test_a_conflict_is_relaxed_by_a_soft_list() -> None:
    """Fair share of one node, anti-affinity among two tasks: the second waits its time, then shares the node."""
    scene = a_scene(a=4, b=4)
    share = FairSharing(Share("all", children=(Share("res/a"), Share("res/b"))), frozenset({"res/a", "res/b"}))
    apart = Soft((AntiAffinity("app/apart"), compose()), after_s=30)
    mine = compose(share.of("res/a"), apart)
    assert mine.asks() == (Alternative({"res/a": 1, "app/apart": 1}), Alternative({"res/a": 1}, 30))
    for name in ("x", "y"):
        scene.submit(name, mine)
    scene.settle(mine)
    scene.now_s = 29.9
    scene.settle(mine)
    assert list(scene.running) == ["x"]
    scene.now_s = 30.0
    scene.settle(mine)
    assert scene.running["x"] == scene.running["y"] and scene.choices == {"x": 0, "y": 1}


def test_a_preference_that_can_be_met_is_met_even_late() -> None:
    scene, soft = a_scene(a=1, b=1), Soft((DataLocality("app/data", ("b",)), compose()), after_s=10)
    scene.submit("x", soft)
    scene.now_s = 100.0
    scene.settle(soft)
    assert scene.running == {"x": ("b",)} and scene.choices == {"x": 0}


def test_each_further_choice_opens_another_time_later() -> None:
    soft = Soft((DataLocality("app/near", ()), DataLocality("app/rack", ()), compose()), after_s=5)
    assert [(dict(each.requires), each.after_s) for each in soft.asks()] == [
        ({"app/near": 1}, 0),
        ({"app/rack": 1}, 5),
        ({}, 10),
    ]


def test_a_later_choice_does_not_open_before_its_time_when_an_earlier_one_is_closed_too() -> None:
    scene = a_scene(a=1)
    later = Fallback(20.0, (Member({"node/gpu": 1}),)), Fallback(10.0, (Member(CPU),))
    request = GangRequest(("x", 1), (Member({"node/tpu": 1}),), later)
    assert match(scene.table, [request], 9.0) == ()
    (placed,) = match(scene.table, [request], 10.0)
    assert (placed.nodes, placed.choice) == (("a",), 2)


def test_a_group_beside_a_soft_constraint_goes_where_the_preference_holds_if_it_can() -> None:
    scene = a_scene(a=9, b=2, c=2)
    soft = Soft((DataLocality("app/data", ("c",)), compose()), after_s=10)
    for tasks, node in ((2, "c"), (3, "a")):
        group = compose(soft, CoLocation(f"app/group-{tasks}", CPU, tasks))
        group.apply(scene.cluster)
        assert list(scene.capacities()[f"app/group-{tasks}"]) == [node]


def test_load_balancing_does_not_wait_for_nodes_that_the_library_to_its_left_has_used_up() -> None:
    scene, apart, lb = a_scene(a=9, b=9), AntiAffinity("app/apart"), LoadBalancing("app/lb", CPU)
    both = compose(apart, lb)
    both.apply(scene.cluster)
    scene.table.acquire(("other", 1), [("b", {"app/lb": 1})], 0.0)
    scene.table.acquire(("mine", 1), [("a", {"app/apart": 1})], 0.0)
    scene.submit("x", both)
    scene.settle(both)
    assert scene.running == {"x": ("b",)}


def test_a_queue_beside_a_soft_constraint_grants_what_the_fallback_needs() -> None:
    scene = a_scene(a=2)
    queue = Priority((Queue("q/only", waiting=2),), CPU).of("q/only")
    library = compose(Soft((AntiAffinity("app/apart"), compose()), after_s=5), queue)
    for name in ("x", "y"):
        scene.submit(name, library)
    scene.now_s = 5.0
    library.apply(scene.cluster)
    assert scene.start() == ["x", "y"]


def test_a_soft_constraint_without_choices_or_with_negative_time_is_refused() -> None:
    with pytest.raises(InvalidResource, match="choices"):
        Soft((), 1)
    with pytest.raises(InvalidResource, match="after_s"):
        Soft((compose(),), float("nan"))


choice = st.builds(Alternative, st.dictionaries(st.sampled_from("xyz"), st.integers(1, 2)), st.integers(0, 3))


class Asking:
    """A library that only asks."""

    def __init__(self, asked: list[Alternative]) -> None:
        self.asked = asked

    def apply(self, cluster: object, companions: object = None) -> None:
        """Nothing."""

    def asks(self) -> tuple[Alternative, ...]:
        return tuple(self.asked)


@histories
@given(parts=st.lists(st.lists(choice, min_size=1, max_size=3), max_size=3))
def test_alternatives_open_in_order_are_distinct_and_come_as_early_as_any_of_their_sums(
    parts: list[list[Alternative]],
) -> None:
    asked = compose(*(Asking(part) for part in parts)).asks()
    assert [each.after_s for each in asked] == sorted(each.after_s for each in asked)
    assert len({tuple(sorted(each.requires.items())) for each in asked}) == len(asked)
    latest_first_choice = max((min(each.after_s for each in part) for part in parts), default=0)
    assert asked[0].after_s == latest_first_choice


# --- the port, in process ---


def test_a_call_writes_all_or_none_and_compares_what_was_read() -> None:
    scene = a_scene(a=1, b=1)
    scene.cluster.set_resource(Write("app/x", "a", 2, ABSENT), Write("app/y", "b", 1))
    with pytest.raises(StaleVersion, match="app/x on a has changed"):
        scene.cluster.set_resource(Write("app/y", "b", 5), Write("app/x", "a", 3, Seen(1, 1)))
    with pytest.raises(NotFound):
        scene.cluster.set_resource(Write("app/y", "b", 5), Write("app/x", "z", 3))
    assert scene.capacities() == {"app/x": {"a": 2}, "app/y": {"b": 1}}


def test_what_a_library_set_ends_with_its_lease_unless_applied_again() -> None:
    scene, apart = a_scene(a=1), AntiAffinity("app/apart")
    apart.apply(scene.cluster)
    scene.now_s = 50.0
    apart.apply(scene.cluster)
    scene.now_s = 109.0
    assert scene.capacities() == {"app/apart": {"a": 1}}
    scene.now_s = 110.0
    assert scene.capacities() == {}


def test_a_lease_that_is_no_time_is_refused() -> None:
    scene = a_scene(a=1)
    with pytest.raises(InvalidResource, match="ttl_s"):
        InProcess(scene.table, 0.0, 0.0).set_resource(Write("app/x", "a", 1))


def test_unbounded_is_the_most_that_every_backend_takes() -> None:
    assert UNBOUNDED == CAPACITY_MAX


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_a_library_is_one_file_over_the_two_primitives_alone(path: Path) -> None:
    imported = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in imported if module and module.startswith("gavel")}
    allowed = {"gavel.ephemeral.libraries.primitives", "gavel.errors"}
    assert path.stem == "__init__" or ours <= allowed
