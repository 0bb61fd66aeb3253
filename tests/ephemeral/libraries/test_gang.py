from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gavel.ephemeral.libraries import AntiAffinity, Gang, GangPool, Library, Write, compose
from gavel.ephemeral.libraries.primitives import State
from gavel.errors import Conflict, InvalidResource, StaleVersion
from tests.ephemeral.libraries.scene import FULL, Scene, a_scene, load


def start_tasks(scene: Scene, gang: Gang, *, count: int | None = None) -> list[str]:
    """One task at a time, as on a cluster that knows no gangs."""
    for index in range(count or gang.tasks):
        scene.submit(f"{gang.label}{index}", gang, cpu=0)
    return scene.start()


def reserved(scene: Scene, gang: Gang) -> int:
    return sum(scene.capacities().get(gang.name, {}).values())


def test_a_gang_has_all_its_slots_or_none_and_the_fewest_nodes() -> None:
    scene = a_scene(a=0, b=0, c=0)
    pool = GangPool("app/slots", {"a": 2, "b": 4, "c": 1})
    five, three = pool.of("five", 5), pool.of("three", 3)
    five.apply(scene.cluster)
    three.apply(scene.cluster)
    assert scene.capacities() == {"app/slots": {"a": 1, "c": 1}, "app/slots-five": {"a": 1, "b": 4}}
    assert start_tasks(scene, three) == []
    assert len(start_tasks(scene, five)) == 5


def test_two_gangs_that_race_for_the_last_slots_both_finish_on_a_matcher_that_knows_no_gangs() -> None:
    scene = a_scene(a=0, b=0)
    pool = GangPool("app/slots", {"a": 2, "b": 2})
    x, y = pool.of("x", 3), pool.of("y", 3)
    for gang in (x, y):
        gang.apply(scene.cluster)
    started = start_tasks(scene, y) + start_tasks(scene, x)
    assert started == ["x0", "x1", "x2"], "y holds nothing while it waits"
    scene.end(*started)
    x.disband(scene.cluster)
    y.apply(scene.cluster)
    assert scene.start() == ["y0", "y1", "y2"]


class Interrupted:
    """A cluster on which another client acts between this one's last read and its write."""

    def __init__(self, scene: Scene, other: Library, reads: int) -> None:
        self.inner, self.other, self.reads = scene.cluster, other, reads

    def get_cluster_state(self) -> State:
        state = self.inner.get_cluster_state()
        self.reads -= 1
        if not self.reads:
            self.other.apply(self.inner)
        return state

    def set_resource(self, *writes: Write) -> None:
        self.inner.set_resource(*writes)


@pytest.mark.parametrize("reads", [1, 2])
def test_who_decided_on_an_older_state_takes_nothing(reads: int) -> None:
    scene, pool = a_scene(a=0), GangPool("app/slots", {"a": 4})
    pool.apply(scene.cluster)
    slow, fast = pool.of("slow", 3), pool.of("fast", 3)
    slow.apply(Interrupted(scene, fast, reads))
    assert scene.capacities() == {"app/slots": {"a": 1}, "app/slots-fast": {"a": 3}}


def test_a_task_that_takes_a_slot_between_read_and_write_is_not_overrun() -> None:
    scene, pool = a_scene(a=0), GangPool("app/slots", {"a": 2})
    pool.apply(scene.cluster)
    scene.submit("alone", pool, cpu=0)

    class Starting(Interrupted):
        def set_resource(self, *writes: Write) -> None:
            scene.start()
            super().set_resource(*writes)

    pool.of("x", 2).apply(Starting(scene, pool, 99))
    assert scene.running == {"alone": ("a",)}
    assert scene.capacities() == {"app/slots": {"a": 2}}


def test_slots_come_back_only_when_the_last_task_has_ended() -> None:
    scene, pool = a_scene(a=0), GangPool("app/slots", {"a": 2})
    gang = pool.of("x", 2)
    gang.apply(scene.cluster)
    started = start_tasks(scene, gang)
    with pytest.raises(Conflict, match="tasks of app/slots-x still run on a"):
        gang.disband(scene.cluster)
    scene.end(*started)
    gang.disband(scene.cluster)
    assert scene.capacities() == {"app/slots": {"a": 2}}


def test_a_gang_that_could_not_give_its_slots_back_says_so() -> None:
    scene, pool = a_scene(a=0), GangPool("app/slots", {"a": 4})
    gang = pool.of("x", 2)
    gang.apply(scene.cluster)
    with pytest.raises(StaleVersion):
        gang.disband(Interrupted(scene, pool.of("y", 2), 1))
    gang.disband(scene.cluster)
    assert scene.capacities() == {"app/slots": {"a": 2}, "app/slots-y": {"a": 2}}


def test_a_gang_whose_owner_is_gone_loses_its_slots_with_its_lease_but_not_under_running_tasks() -> None:
    scene, pool = a_scene(a=0), GangPool("app/slots", {"a": 3})
    gang = pool.of("x", 2)
    gang.apply(scene.cluster)
    start_tasks(scene, gang, count=1)
    scene.now_s = 61.0
    pool.apply(scene.cluster)
    assert scene.capacities() == {"app/slots": {"a": 2}}
    scene.end("x0")
    pool.apply(scene.cluster)
    assert scene.capacities() == {"app/slots": {"a": 3}}


def test_a_gang_that_lost_a_node_before_it_started_is_placed_again_whole() -> None:
    scene, pool = a_scene(a=0, b=0, c=0), GangPool("app/slots", {"a": 2, "b": 2, "c": 2})
    gang = pool.of("x", 4)
    gang.apply(scene.cluster)
    scene.table.remove_node("a")
    gang.apply(scene.cluster)
    assert scene.capacities()["app/slots-x"] == {"b": 2, "c": 2}
    scene.table.remove_node("b")
    gang.apply(scene.cluster)
    assert scene.capacities() == {"app/slots": {"c": 2}}, "what is left of it is given back while it waits"


def test_a_gang_beside_anti_affinity_is_spread() -> None:
    scene, pool = a_scene(a=0, b=0, c=0), GangPool("app/slots", {"a": 4, "b": 4, "c": 4})
    spread = compose(AntiAffinity("app/apart"), pool.of("x", 3))
    spread.apply(scene.cluster)
    scene.submit("x", spread, tasks=3, cpu=0)
    scene.start()
    assert load(scene.running) == {"a": 1, "b": 1, "c": 1}


def test_a_gang_of_no_tasks_is_refused() -> None:
    with pytest.raises(InvalidResource, match="tasks: 0 must be at least 1"):
        GangPool("app/slots", {}).of("x", 0)


class RacingGangs(RuleBasedStateMachine):
    """Gangs of a pool reserve, start tasks one by one, end and disband in any order."""

    SLOTS: Mapping[str, int] = {"a": 3, "b": 2, "c": 1}

    def __init__(self) -> None:
        super().__init__()
        self.scene = a_scene(**dict.fromkeys(self.SLOTS, 0))
        self.pool = GangPool("app/slots", self.SLOTS)
        self.pool.apply(self.scene.cluster)
        self.gangs: dict[str, Gang] = {}
        self.count = 0

    @rule(tasks=st.integers(1, 7))
    def a_gang_comes(self, tasks: int) -> None:
        self.count += 1
        gang = self.gangs[f"g{self.count}"] = self.pool.of(f"g{self.count}", tasks)
        gang.apply(self.scene.cluster)
        for index in range(tasks):
            self.scene.submit(f"{gang.label}-{index}", gang, cpu=0)

    @rule(order=st.randoms(use_true_random=False))
    def all_apply_in_any_order(self, order: Random) -> None:
        gangs = list(self.gangs.values())
        order.shuffle(gangs)
        for gang in gangs:
            gang.apply(self.scene.cluster)

    @rule()
    def tasks_start(self) -> None:
        self.scene.start()

    @rule()
    def a_task_alone_comes(self) -> None:
        self.count += 1
        self.scene.submit(f"alone{self.count}", self.pool, cpu=0)

    @precondition(lambda self: self.scene.running)
    @rule(data=st.data())
    def a_task_ends(self, data: st.DataObject) -> None:
        self.scene.end(data.draw(st.sampled_from(sorted(self.scene.running))))

    @precondition(lambda self: self.gangs)
    @rule(data=st.data())
    def a_gang_that_ran_disbands(self, data: st.DataObject) -> None:
        label = data.draw(st.sampled_from(sorted(self.gangs)))
        tasks = {f"{label}-{index}" for index in range(self.gangs[label].tasks)}
        if tasks & (set(self.scene.running) | set(self.scene.waiting)):
            return
        self.gangs.pop(label).disband(self.scene.cluster)

    @invariant()
    def a_gang_has_all_its_slots_or_none(self) -> None:
        for gang in self.gangs.values():
            assert reserved(self.scene, gang) in (0, gang.tasks)

    @invariant()
    def no_node_has_more_tasks_and_reservations_than_slots(self) -> None:
        for node, names in self.scene.cluster.get_cluster_state().items():
            reservations = sum(u.capacity for name, u in names.items() if name.startswith("app/slots-"))
            pool = names.get("app/slots")
            alone = pool.capacity - pool.free if pool else 0
            assert reservations + alone <= self.SLOTS[node]

    def teardown(self) -> None:
        """Whatever happened, once all tasks end each gang that can ever fit gets its turn."""
        for _ in range(3 * len(self.gangs) + 3):
            self.scene.end(*list(self.scene.running))
            for label, gang in list(self.gangs.items()):
                if not any(name.startswith(f"{label}-") for name in self.scene.waiting):
                    self.gangs.pop(label).disband(self.scene.cluster)
                else:
                    gang.apply(self.scene.cluster)
            self.scene.start()
        assert {gang.tasks for gang in self.gangs.values()} <= {7}


RacingGangs.TestCase.settings = settings(max_examples=300 if FULL else 30, stateful_step_count=30)
TestRacingGangs = RacingGangs.TestCase
