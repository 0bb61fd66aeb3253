"""Ephemeral resources of applications: commands, what is wanted against what is there, faults in between."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gavel.ports import SetResources
from gavel.simulator.cluster import program
from gavel.types import Job, JobState, Operation, OperationState
from tests.mechanism.test_driver import World

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


class Steered(World):
    """A world whose operators and jobs set resources; one node, node-0, unless more are named."""

    def ask(self, *items: dict[str, Any], job_id: str | None = None) -> Operation:
        """The operation after the tick that applied it."""
        full = [{"owner": job_id or "app", "nodes": "node-0", "ttl_s": 60.0, "capacity": 1, **item} for item in items]
        body = {"resources": full, "job_id": job_id}
        asked = self.store.add_command("resources.set", subject="r", body=body, by="x", now_s=self.clock.now_s())
        self.driver.tick()
        return self.store.operation(asked.id)

    def there(self) -> dict[str, tuple[int, int]]:
        """{owner/name: (capacity, generation)} of applications, as the cluster has it."""
        resources = [each for each in self.backend.observe().resources if each.owner != "gavel"]
        return {f"{each.owner}/{each.name}": (each.capacity, each.generation) for each in resources}

    def running(self) -> Job:
        job_id = self.submit(10_000, argv=program("mlp"))
        self.run(lambda: self.job(job_id).state is JobState.LEASED)
        self.driver.tick()
        return self.job(job_id)


def test_a_command_sets_a_name_and_the_store_keeps_it() -> None:
    world = Steered()
    done = world.ask({"name": "lb", "capacity": 2})
    assert done.state is OperationState.DONE
    assert world.there() == {"app/lb": (2, 2 * done.sequence)}
    (kept,) = world.store.resources()
    assert (kept.resource.capacity, kept.resource.generation, kept.free) == (2, 2 * done.sequence, 2)


def test_a_renewal_keeps_the_generation_and_a_change_or_a_shorter_lease_raises_it() -> None:
    world = Steered()
    first = 2 * world.ask({"name": "lb"}).sequence
    world.clock.advance(1.0)
    world.ask({"name": "lb"})
    assert world.there() == {"app/lb": (1, first)}
    changed = world.ask({"name": "lb", "capacity": 3})
    assert world.there() == {"app/lb": (3, 2 * changed.sequence)}
    shorter = world.ask({"name": "lb", "capacity": 3, "ttl_s": 2.0})
    assert world.there() == {"app/lb": (3, 2 * shorter.sequence)}
    world.clock.advance(3.0)
    world.driver.tick()
    assert world.there() == {} and world.store.resources() == ()


def test_capacity_zero_deletes_and_a_name_that_comes_again_is_not_refused_as_stale() -> None:
    world = Steered()
    world.ask({"name": "lb"})
    world.ask({"name": "lb", "capacity": 0})
    assert world.there() == {} and world.store.resources() == ()
    again = world.ask({"name": "lb", "capacity": 4})
    assert world.there() == {"app/lb": (4, 2 * again.sequence)}


@pytest.mark.parametrize("expected", [{"expect_generation": 0}, {"expect": {"capacity": 1, "free": 0}}])
def test_compare_and_set_refuses_what_has_moved_on_and_a_batch_is_whole(expected: dict[str, Any]) -> None:
    world = Steered()
    first = world.ask({"name": "lb"})
    refused = world.ask({"name": "other"}, {"name": "lb", "capacity": 5, **expected})
    assert (refused.state, refused.error_kind) == (OperationState.FAILED, "StaleVersion")
    assert world.there() == {"app/lb": (1, 2 * first.sequence)}
    assert (
        world.ask({"name": "lb", "capacity": 5, "expect_generation": 2 * first.sequence}).state is OperationState.DONE
    )
    assert world.ask({"name": "lb", "capacity": 6, "expect": {"capacity": 5, "free": 5}}).state is OperationState.DONE


@pytest.mark.parametrize(
    ("item", "kind", "blamed"),
    [
        ({"nodes": "nowhere"}, "NotFound", "nowhere"),
        ({"owner": "gavel"}, "InvalidResource", "owns the scheduler's gangs"),
        ({"owner": "node"}, "InvalidResource", "owns the physical resources"),
        ({"name": "Not-A-Name"}, "InvalidResource", "1 to 63"),
        ({"ttl_s": 1e9}, "InvalidResource", "at most 604800"),
        ({"capacity": -1}, "InvalidResource", "whole number"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(item: dict[str, Any], kind: str, blamed: str) -> None:
    world = Steered()
    refused = world.ask({"name": "lb", **item})
    assert (refused.state, refused.error_kind) == (OperationState.FAILED, kind)
    assert blamed in refused.error
    assert world.there() == {}


def test_a_vector_chooses_the_nodes_that_have_so_much_free_now() -> None:
    world = Steered()
    assert world.ask({"name": "lb", "nodes": {"node/worker-fast-0": 1}}).result["resources"]
    world.running()
    held = next(iter(world.backend.observe().held))[0]
    assert world.ask({"name": "busy", "nodes": {"node/worker-none": 1}}).result["resources"] == []
    taken = [name for name, _ in world.backend.observe().held if name.startswith("node/")]
    assert held and world.ask({"name": "busy", "nodes": {taken[0]: 1}}).result["resources"] == []
    assert world.ask({"name": "more", "nodes": {"app/lb": 1}, "num_nodes": 1}).result["resources"]


def test_a_job_sets_names_on_the_nodes_it_holds_and_they_go_with_it() -> None:
    world = Steered()
    waiting = world.submit(10)
    refused = world.ask({"name": "near"}, job_id=waiting)
    assert (refused.state, refused.error_kind) == (OperationState.FAILED, "Conflict")
    job = world.running()
    assert world.ask({"name": "near"}, job_id=job.id).state is OperationState.DONE
    assert f"{job.id}/near" in world.there()
    world.store.request_cancel(job.id, now_s=world.clock.now_s())
    world.run(lambda: world.job(job.id).state is JobState.CANCELLED)
    world.driver.tick()
    assert world.there() == {} and world.store.resources() == ()


def test_a_name_that_went_with_its_job_may_come_again_at_once() -> None:
    """The cluster still refuses what is older than the deletion, which no command asked for."""
    world = Steered()
    job = world.running()
    world.ask({"name": "near"}, job_id=job.id)
    world.store.request_cancel(job.id, now_s=world.clock.now_s())
    world.run(lambda: world.job(job.id).state is JobState.CANCELLED)
    world.driver.tick()
    assert world.there() == {}
    again = world.ask({"name": "near", "owner": job.id, "capacity": 3})
    assert world.there() == {f"{job.id}/near": (3, 2 * again.sequence)}


def test_a_node_that_comes_back_is_told_what_is_still_leased_once() -> None:
    world = Steered()
    set_ = world.ask({"name": "lb", "capacity": 2})
    world.backend.lose_node("node-0")
    world.driver.tick()
    assert world.there() == {} and len(world.store.resources()) == 1
    world.backend.return_node("node-0")
    world.driver.tick()
    assert world.there() == {"app/lb": (2, 2 * set_.sequence)}


def test_names_that_nobody_wants_any_more_are_collected() -> None:
    """A delete was committed, and the service died before the cluster heard of it."""
    world = Steered()
    world.ask({"name": "lb"})
    leaked = replace(world.store.resources()[0].resource, name="leaked")
    world.backend.execute([SetResources(resources=(leaked,))])
    world.driver = world.new_driver()
    world.driver.tick()
    assert set(world.there()) == {"app/lb"}


class Commands(RuleBasedStateMachine):
    """Writes, deletions, losses and restarts in any order against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Steered()
        self.wanted: dict[str, tuple[int, float]] = {}  # name -> capacity, lease end
        self.is_there = True

    @rule(name=st.sampled_from("abc"), capacity=st.integers(0, 3), ttl_s=st.sampled_from([1.0, 5.0, 60.0]))
    def set(self, name: str, capacity: int, ttl_s: float) -> None:
        done = self.world.ask({"name": name, "capacity": capacity, "ttl_s": ttl_s})
        assert done.state is (OperationState.DONE if self.is_there else OperationState.FAILED)
        if self.is_there and capacity:
            self.wanted[name] = (capacity, self.world.clock.now_s() + ttl_s)
        elif self.is_there:
            self.wanted.pop(name, None)

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def lose(self) -> None:
        self.world.backend.lose_node("node-0")
        self.is_there = False

    @rule()
    def come_back(self) -> None:
        self.world.backend.return_node("node-0")
        self.is_there = True

    @rule()
    def restart(self) -> None:
        self.world.driver = self.world.new_driver()

    @invariant()
    def the_cluster_has_what_is_wanted(self) -> None:
        self.world.driver.tick()
        now_s = self.world.clock.now_s()
        self.wanted = {name: each for name, each in self.wanted.items() if each[1] > now_s}
        there = {name: capacity for name, (capacity, _) in self.world.there().items()}
        assert there == (
            {f"app/{name}": capacity for name, (capacity, _) in self.wanted.items()} if self.is_there else {}
        )
        kept = {each.resource.name: each.resource.capacity for each in self.world.store.resources()}
        assert kept == {name: capacity for name, (capacity, _) in self.wanted.items()}


TestCommands = Commands.TestCase
TestCommands.settings = settings(max_examples=500 if IS_FULL else 20, stateful_step_count=25)
