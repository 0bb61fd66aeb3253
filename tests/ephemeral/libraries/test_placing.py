"""Co-location, anti-affinity, data locality and bin packing, with the traps of their printed recipes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.ephemeral.libraries import AntiAffinity, BinPacking, CoLocation, DataLocality, Write, compose
from gavel.ephemeral.libraries.primitives import State
from gavel.errors import InvalidResource
from tests.ephemeral.libraries.scene import a_scene, has_room, histories, load

CPU = {"node/cpu": 1}


# --- co-location ---


def test_a_group_goes_to_one_node_with_room_for_all_of_it() -> None:
    """The paper's listing sets the name on every node that fits one task, and so may split the group."""
    scene, group = a_scene(a=2, b=3, c=3), CoLocation("app/pair", CPU, 3)
    group.apply(scene.cluster)
    assert scene.capacities() == {"app/pair": {"b": 3}}
    scene.submit("group", group, tasks=3)
    scene.settle(group)
    assert scene.running == {"group": ("b", "b", "b")}


def test_a_group_whose_room_others_took_first_moves_before_it_starts() -> None:
    scene, group = a_scene(a=3, b=2), CoLocation("app/pair", CPU, 2)
    group.apply(scene.cluster)
    scene.submit("thief", tasks=2)
    scene.start()
    scene.submit("group", group, tasks=2)
    assert scene.start() == []
    scene.settle(group)
    assert scene.running["group"] == ("b", "b") and scene.capacities() == {"app/pair": {"b": 2}}


def test_a_group_that_fits_nowhere_waits_and_starts_when_there_is_room() -> None:
    scene, group = a_scene(a=2, b=2), CoLocation("app/pair", CPU, 2)
    scene.submit("x", AntiAffinity("app/x"), tasks=2)
    scene.settle(AntiAffinity("app/x"))
    scene.submit("group", group, tasks=2)
    scene.settle(group)
    assert "group" in scene.waiting and "app/pair" not in scene.capacities()
    scene.end("x")
    scene.settle(group)
    assert len(set(scene.running["group"])) == 1


def test_a_group_of_which_a_task_runs_is_never_moved() -> None:
    scene, group = a_scene(a=2, b=2), CoLocation("app/pair", CPU, 2)
    group.apply(scene.cluster)
    scene.submit("first", group)
    scene.submit("thief")
    scene.start()
    group.apply(scene.cluster)
    assert scene.capacities() == {"app/pair": {"a": 2}}


def test_a_group_does_not_move_when_a_task_of_it_starts_meanwhile() -> None:
    scene, group = a_scene(a=3, b=3), CoLocation("app/pair", CPU, 2)
    group.apply(scene.cluster)
    scene.table.acquire(("thief", 1), [("a", {"node/cpu": 2})], 0.0)

    class Starting:
        """A task of the group starts after the library has read and before it writes."""

        def get_cluster_state(self) -> State:
            state = scene.cluster.get_cluster_state()
            scene.submit("first", group)
            scene.start()
            return state

        def set_resource(self, *writes: Write) -> None:
            scene.cluster.set_resource(*writes)

    group.apply(Starting())
    assert scene.running == {"first": ("a",)} and scene.capacities() == {"app/pair": {"a": 2}}


# --- anti-affinity ---


def test_tasks_of_a_group_do_not_share_a_node_and_the_last_waits() -> None:
    scene, apart = a_scene(a=9, b=9), AntiAffinity("app/apart")
    for index in range(3):
        scene.submit(f"t{index}", apart)
    scene.settle(apart)
    assert load(scene.running) == {"a": 1, "b": 1} and list(scene.waiting) == ["t2"]
    scene.table.add_node("c", {"cpu": 1})
    scene.settle(apart)
    assert load(scene.running) == {"a": 1, "b": 1, "c": 1}


def test_long_tasks_of_one_group_do_not_keep_another_group_away() -> None:
    scene, mine, other = a_scene(a=9, b=9), AntiAffinity("app/mine"), AntiAffinity("app/other")
    for index in range(2):
        scene.submit(f"m{index}", mine)
        scene.submit(f"o{index}", other)
    scene.settle(mine, other)
    assert load(scene.running) == {"a": 2, "b": 2}


def test_a_limit_per_node_may_be_above_one() -> None:
    scene, apart = a_scene(a=9), AntiAffinity("app/apart", per_node=2)
    for index in range(3):
        scene.submit(f"t{index}", apart)
    scene.settle(apart)
    assert load(scene.running) == {"a": 2}


# --- data locality ---


def test_tasks_go_where_the_data_is_and_are_admitted_by_their_needs_alone() -> None:
    scene, local = a_scene(a=1, b=2, c=9), DataLocality("app/data-x", ("a", "b"))
    for index in range(4):
        scene.submit(f"t{index}", local)
    scene.settle(local)
    assert load(scene.running) == {"a": 1, "b": 2} and len(scene.waiting) == 1


def test_data_that_is_invalid_attracts_nobody_any_more() -> None:
    scene = a_scene(a=1, b=2)
    DataLocality("app/data-x", ("a", "b")).apply(scene.cluster)
    DataLocality("app/data-x", ()).apply(scene.cluster)
    assert scene.capacities() == {}


def test_the_name_does_not_wander_to_a_node_that_has_no_data() -> None:
    scene, local = a_scene(a=1, b=2), DataLocality("app/data-x", ("a",))
    local.apply(scene.cluster)
    scene.table.remove_node("a")
    local.apply(scene.cluster)
    assert scene.capacities() == {}
    scene.table.add_node("a", {"cpu": 1})
    local.apply(scene.cluster)
    assert list(scene.capacities()["app/data-x"]) == ["a"]


def test_a_task_submitted_first_follows_one_that_starts_later() -> None:
    scene = a_scene(a=1, b=2)
    scene.submit("follower", DataLocality("app/near-leader", ()))
    assert scene.start() == []
    scene.submit("leader", cpu=2)
    scene.start()
    DataLocality("app/near-leader", scene.running["leader"]).apply(scene.cluster)
    assert scene.start() == []
    scene.end("leader")
    assert scene.start() == ["follower"] and scene.running["follower"] == ("b",)


# --- bin packing ---


def test_tasks_fill_one_node_before_another_is_opened() -> None:
    scene, packing = a_scene(a=4, b=2, c=4), BinPacking("app/bin", CPU)
    packing.apply(scene.cluster)
    assert list(scene.capacities()["app/bin"]) == ["b"]
    for index in range(3):
        scene.submit(f"t{index}", packing)
    scene.settle(packing)
    assert load(scene.running) == {"a": 1, "b": 2}


def test_the_open_nodes_become_fewer_again_and_the_emptiest_one_drains() -> None:
    scene, packing = a_scene(a=2, b=2, c=2), BinPacking("app/bin", CPU)
    for index in range(6):
        scene.submit(f"t{index}", packing)
    scene.settle(packing)
    assert load(scene.running) == {"a": 2, "b": 2, "c": 2} and scene.capacities() == {}
    on_a, on_c = (next(name for name, (at,) in scene.running.items() if at == node) for node in "ac")
    scene.end(on_a, on_c, *(name for name, (at,) in scene.running.items() if at == "b"))
    scene.settle(packing)
    assert len(scene.capacities()["app/bin"]) == 1
    scene.submit("late", packing)
    scene.settle(packing)
    assert sorted(load(scene.running).values()) == [1, 2]


def test_a_task_larger_than_what_is_left_on_the_open_node_opens_another() -> None:
    scene, packing = a_scene(a=4, b=4), BinPacking("app/bin", {"node/cpu": 3})
    for index in range(2):
        scene.submit(f"t{index}", packing, cpu=3)
    scene.settle(packing)
    assert load(scene.running) == {"a": 1, "b": 1}


@histories
@given(cpus=st.lists(st.integers(0, 4), min_size=1, max_size=4), events=st.lists(st.integers(0, 5), max_size=30))
def test_whatever_starts_and_ends_one_node_at_most_is_open_and_nothing_waits_that_fits(
    cpus: list[int], events: list[int]
) -> None:
    scene, packing = a_scene(**{f"n{index}": cpu for index, cpu in enumerate(cpus)}), BinPacking("app/bin", CPU)
    for index, event in enumerate(events):
        if event < 4:
            scene.submit(f"t{index}", packing)
        elif scene.running:
            scene.end(sorted(scene.running)[event % len(scene.running)])
        scene.settle(packing)
        opened = scene.capacities().get("app/bin", {})
        assert len(opened) <= 1
        assert not (scene.waiting and has_room(scene))


def test_numbers_that_make_no_sense_are_refused_with_the_field() -> None:
    with pytest.raises(InvalidResource, match="needs: 0 must be at least 1"):
        BinPacking("app/bin", {})
    with pytest.raises(InvalidResource, match="per_node"):
        AntiAffinity("app/apart", 0)
    with pytest.raises(InvalidResource, match="name: 'apart' must be written owner/name"):
        compose(AntiAffinity("apart")).apply(a_scene(a=1).cluster)
