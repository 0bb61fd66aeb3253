"""What the API asks of the scheduler is applied once, in order, and survives any restart."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gavel.errors import Conflict
from gavel.mechanism.commands import table
from gavel.mechanism.commands.table import Handler
from gavel.mechanism.tick import Outcome, Tick
from gavel.ports import Changes, SetResources
from gavel.store.memory import MemoryStore
from gavel.types import EphemeralResource, NodeState, Operation, OperationState
from tests.mechanism.world import World, a_cluster_of_nodes


@contextmanager
def handling(monkeypatch: pytest.MonkeyPatch, **handlers: Handler) -> Iterator[None]:
    """A table with these kinds besides."""
    with monkeypatch.context() as patch:
        patch.setattr(table, "HANDLERS", {**table.HANDLERS, **handlers})
        yield


def test_a_command_is_applied_by_the_next_tick_and_audited() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    world.driver.tick()
    asked = world.ask("node.cordon", "node/n1")
    assert world.operation(asked).state is OperationState.PENDING
    world.driver.tick()
    done = world.operation(asked)
    assert (done.state, done.result["state"], done.finished_at_s) == (OperationState.DONE, "cordoned", 0.0)
    assert world.store.snapshot().commands == ()


def test_commands_are_applied_in_the_order_in_which_they_were_acknowledged() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    asked = [world.ask(f"node.{what}", "node/n0") for what in ("cordon", "uncordon", "cordon", "uncordon")]
    world.driver.tick()
    states = [world.operation(each).result["state"] for each in asked]
    assert states == ["cordoned", "ready", "cordoned", "ready"]
    assert world.store.nodes()[0].state is NodeState.READY


@pytest.mark.parametrize(
    ("kind", "subject", "body", "error", "says"),
    [
        ("node.cordon", "node/none", {}, "NotFound", "there are n0"),
        ("node.drain", "node/n0", {}, "InvalidRequest", "seconds until"),
        ("node.drain", "node/n0", {"window_s": -1}, "InvalidRequest", "seconds until"),
        ("node.drain", "node/n0", {"window_s": float("nan")}, "InvalidRequest", "seconds until"),
        ("node.explode", "node/n0", {}, "InvalidRequest", "knows no node.explode"),
    ],
)
def test_what_cannot_be_done_fails_with_its_error_and_changes_nothing(
    kind: str, subject: str, body: dict[str, object], error: str, says: str
) -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    before = world.store.nodes()
    asked = world.ask(kind, subject, **body)
    world.driver.tick()
    failed = world.operation(asked)
    assert (failed.state, failed.error_kind) == (OperationState.FAILED, error)
    assert says in failed.error and world.store.nodes() == before


def test_a_node_that_is_drained_is_not_cordoned_over() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    asked = [world.ask("node.drain", "node/n0", window_s=5), world.ask("node.cordon", "node/n0")]
    world.driver.tick()
    assert [world.operation(each).state.value for each in asked] == ["done", "failed"]
    assert world.operation(asked[1]).error_kind == "Conflict"


def test_a_pending_command_is_applied_after_a_restart_just_once() -> None:
    """1. A command is acknowledged. 2. The scheduler dies before its tick, and again after its commit."""
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    asked = world.ask("node.drain", "node/n0", window_s=5)
    world.clock.advance(3.0)
    world.driver = world.new_driver()
    world.driver.tick()
    done = world.operation(asked)
    assert done.state is OperationState.DONE and world.store.nodes()[0].drain_by_s == 5.0
    world.driver = world.new_driver()
    world.driver.tick()
    assert world.operation(asked) == done


def test_a_commit_that_another_scheduler_won_leaves_the_command_to_the_next_tick() -> None:
    class Racing(MemoryStore):
        """Another scheduler commits just before this one does, once."""

        raced = False

        def commit(self, expected_version: int, changes: Changes) -> int:
            if changes.operations and not self.raced:
                self.raced = True
                super().commit(expected_version, Changes())
            return super().commit(expected_version, changes)

    world = World(store=Racing(), cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    asked = world.ask("node.cordon", "node/n0")
    world.driver.tick()
    assert world.operation(asked).state is OperationState.PENDING
    world.driver.tick()
    assert world.operation(asked).state is OperationState.DONE


def place_it(tick: Tick, command: Operation) -> Outcome:
    """Notes a generation, sets a resource, and is done once it is seen."""
    generation = command.result.get("generation", command.sequence)
    for seen in tick.seen.resources:
        if (seen.name, seen.generation) == ("cache", generation):
            return Outcome(result={"generation": generation, "capacity": seen.capacity})
    wanted = EphemeralResource(
        name="cache", node="n0", capacity=3, owner="ann", lease_expires_at_s=1000.0, generation=generation
    )
    return Outcome(
        is_pending=True, result={"generation": generation}, instructions=(SetResources(resources=(wanted,)),)
    )


def test_a_command_to_the_backend_ends_when_its_effect_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. It is noted and carried out; the driver wants to look at once. 2. It is seen, and done."""
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    with handling(monkeypatch, **{"cache.place": place_it}):
        asked = world.ask("cache.place", "cache")
        assert world.driver.tick() == world.clock.now_s()
        noted = world.operation(asked)
        assert (noted.state, noted.result) == (OperationState.PENDING, {"generation": noted.sequence})
        world.driver.tick()
    assert world.operation(asked).state is OperationState.DONE
    assert world.operation(asked).result == {"generation": noted.sequence, "capacity": 3}


def test_a_crash_between_the_note_and_the_backend_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    execute = world.backend.execute
    with handling(monkeypatch, **{"cache.place": place_it}):
        asked = world.ask("cache.place", "cache")
        world.backend.execute = lambda _: None  # type: ignore[method-assign]  # the process died before it was told
        world.driver.tick()
        world.backend.execute = execute  # type: ignore[method-assign]
        world.driver = world.new_driver()
        world.driver.tick()
        world.driver.tick()
    assert world.operation(asked).state is OperationState.DONE


def test_one_handler_that_refuses_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tick: Tick, command: Operation) -> Outcome:
        raise Conflict("somebody else was faster")

    world = World(cluster=a_cluster_of_nodes(n0="fast"))
    world.driver.tick()
    with handling(monkeypatch, refuse=refuse):
        asked = [world.ask("refuse", "x"), world.ask("node.cordon", "node/n0")]
        world.driver.tick()
    assert [world.operation(each).state.value for each in asked] == ["failed", "done"]
