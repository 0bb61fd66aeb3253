import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.ephemeral.libraries import LoadBalancing, StaticLoadBalancing
from gavel.errors import InvalidResource
from tests.ephemeral.libraries.scene import a_scene, has_room, histories, load


def test_an_idle_cluster_rests_at_one_unit_a_node() -> None:
    """The paper's listing would flap between 0 and 1 here; its prose does not."""
    scene, lb = a_scene(a=4, b=4), LoadBalancing("app/lb")
    for _ in range(5):
        lb.apply(scene.cluster)
        assert scene.capacities() == {"app/lb": {"a": 1, "b": 1}}


def test_no_node_gets_a_second_task_before_every_node_has_one() -> None:
    scene, lb = a_scene(a=9, b=9, c=9), LoadBalancing("app/lb", {"node/cpu": 1})
    for index in range(7):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    assert sorted(load(scene.running).values()) == [2, 2, 3]


def test_when_tasks_end_the_capacity_comes_down_again_and_rests() -> None:
    scene, lb = a_scene(a=9, b=9), LoadBalancing("app/lb", {"node/cpu": 1})
    for index in range(8):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    scene.end(*list(scene.running))
    scene.settle(lb)
    assert scene.capacities() == {"app/lb": {"a": 1, "b": 1}}


def test_a_node_without_room_for_the_tasks_does_not_hold_up_the_others() -> None:
    scene, lb = a_scene(a=0, b=9), LoadBalancing("app/lb", {"node/cpu": 1})
    for index in range(3):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    assert load(scene.running) == {"b": 3}


def test_a_node_that_joins_comes_in_at_the_level_of_the_others() -> None:
    scene, lb = a_scene(a=9), LoadBalancing("app/lb", {"node/cpu": 1})
    for index in range(3):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    scene.table.add_node("b", {"cpu": 9})
    for index in range(3, 8):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    assert load(scene.running) == {"a": 4, "b": 4}


def test_pairs_that_start_together_are_not_stuck_on_a_level_too_low_for_both() -> None:
    scene, lb = a_scene(a=8, b=8), LoadBalancing("app/lb", {"node/cpu": 1}, together=2)
    for index in range(4):
        scene.submit(f"pair{index}", lb, tasks=2)
    scene.settle(lb)
    assert load(scene.running) == {"a": 4, "b": 4}


def test_a_static_part_is_even_and_rounded_up() -> None:
    scene, lb = a_scene(a=9, b=9, c=9), StaticLoadBalancing("app/lb", 7)
    for index in range(8):
        scene.submit(f"t{index}", lb)
    scene.settle(lb)
    assert sorted(load(scene.running).values()) == [2, 3, 3]


def test_a_step_or_a_number_below_one_is_refused() -> None:
    with pytest.raises(InvalidResource, match="together: 0 must be at least 1"):
        LoadBalancing("app/lb", together=0)
    with pytest.raises(InvalidResource, match="tasks"):
        StaticLoadBalancing("app/lb", 0)


@histories
@given(
    cpus=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    events=st.lists(st.integers(0, 5), max_size=30),
    together=st.integers(1, 2),
)
def test_whatever_starts_and_ends_all_that_fits_runs_and_the_library_comes_to_rest(
    cpus: list[int], events: list[int], together: int
) -> None:
    scene = a_scene(**{f"n{index}": cpu for index, cpu in enumerate(cpus)})
    lb = LoadBalancing("app/lb", {"node/cpu": 1}, together)
    for index, event in enumerate(events):
        if event < 4:
            scene.submit(f"t{index}", lb, tasks=together)
        elif scene.running:
            scene.end(sorted(scene.running)[event % len(scene.running)])
        scene.settle(lb)
        assert not (scene.waiting and has_room(scene, cpu=together))
