"""The part of `gavel.backends.conformance` about names of resources, and about clusters of several nodes."""

from collections.abc import Callable
from dataclasses import replace

from gavel.backends.harness import (
    OWNER,
    Behaviour,
    Harness,
    exit_of,
    find,
    gang,
    is_in,
    launch,
    resource,
    spread_gang,
    state_of,
    stop,
)
from gavel.errors import InvalidResource
from gavel.ports import ExtendLease, Instruction, SetResources
from gavel.types import EphemeralResource, GangOutcome, GangState, Observation

Check = Callable[[Harness], None]

RACING = 12
MANY = 1_000
MOST_RETURN_S = 600  # within which a node is lost and back; Slurm alone takes its time limit to notice
NAMES = ("", "Upper", "two/parts", "-dash", "x" * 64)
OWNERS = ("", "node", "with.dot")
CAPACITIES = (-1, 1_000_000_001)


def a_capacity_is_never_exceeded(harness: Harness) -> None:
    """3: many tasks race for two units on three workers; no view shows more than two, and all get their turn."""
    jobs = [f"race-{index}" for index in range(RACING)]
    starts: list[Instruction] = [
        launch(harness, job_id, ("a-0", "a-1", "b-0")[index % 3], behaviour=Behaviour.FINISHES, needs="shared")
        for index, job_id in enumerate(jobs)
    ]
    harness.backend.execute([*starts, resource(harness, "shared", 2)])

    def all_ended(seen: Observation) -> bool:
        assert sum(each.state is GangState.RUNNING for each in seen.gangs) <= 2
        return is_in(GangState.ENDED, *jobs)(seen)

    harness.wait_until(all_ended)
    assert not harness.backend.observe().held


def what_is_held_is_shown(harness: Harness) -> None:
    """25: the view shows how much of each name its holders have."""
    harness.backend.execute([resource(harness, "shared", 2), launch(harness, "holder", needs="shared")])
    seen = harness.wait_until(is_in(GangState.RUNNING, "holder"))
    node = seen.cluster.nodes[0].name
    assert seen.held[f"{OWNER}/shared", node] == 1
    harness.backend.execute(stop("holder"))
    exit_of(harness, "holder")
    assert not harness.backend.observe().held


def a_packed_pair_shares_its_workers_and_nobody_else_does(harness: Harness) -> None:
    """3: each gang takes half of a worker; a third waits for one of them, one that needs whole workers for both."""
    harness.backend.execute([*_half(harness, "one", partner="two"), *_half(harness, "two", partner="one")])
    harness.wait_until(is_in(GangState.RUNNING, "one", "two"))
    harness.backend.execute([*_half(harness, "third", partner="one"), *gang(harness, "alone")])
    assert is_in(GangState.WAITING, "third", "alone")(harness.backend.observe())
    harness.backend.execute(stop("two"))
    seen = harness.wait_until(is_in(GangState.RUNNING, "third"))
    assert is_in(GangState.RUNNING, "one")(seen)
    harness.backend.execute(stop("one", "third"))
    harness.wait_until(is_in(GangState.RUNNING, "alone"))


def a_running_gang_makes_room_for_a_partner_in_place(harness: Harness) -> None:
    """16: an extension announces the partner; the gang is not restarted, and a new service knows of the pair."""
    harness.backend.execute([*gang(harness, "first"), gang(harness, "second")[0]])
    started = find(harness.wait_until(is_in(GangState.RUNNING, "first")), "first")
    second = launch(harness, "second")
    room = ExtendLease(job_id="first", generation=1, expires_at_s=harness.now_s() + 90, shares_with="second")
    harness.backend.execute([replace(second, shares_with="first"), room])
    harness.wait_until(is_in(GangState.RUNNING, "first", "second"))
    harness.crash()
    harness.recover()
    harness.backend.execute(gang(harness, "third"))
    seen = harness.backend.observe()
    assert is_in(GangState.RUNNING, "first", "second")(seen)
    assert is_in(GangState.WAITING, "third")(seen)
    after = find(seen, "first")
    assert started is not None
    assert after is not None
    assert abs((after.started_at_s or 0.0) - (started.started_at_s or 0.0)) < 0.05


def a_name_that_was_deleted_is_not_revived_by_an_older_word(harness: Harness) -> None:
    """11, 13: set, resize and delete, repeated in any order, end deleted; only a newer generation sets it again."""
    words = [resource(harness, "shared", capacity, generation=index) for index, capacity in enumerate((2, 3, 0), 1)]
    for index in (0, 1, 2, 0, 1, 2, 1, 0):
        harness.backend.execute([words[index]])
    assert not harness.backend.observe().resources
    harness.backend.execute([resource(harness, "shared", 5, generation=4)])
    assert [each.capacity for each in harness.backend.observe().resources] == [5]


def what_cannot_be_a_name_is_refused_before_the_cluster_sees_it(harness: Harness) -> None:
    """18: names, owners and capacities that some engine would accept, or misread."""
    good = resource(harness, "good").resources[0]
    bad = (
        *(replace(good, name=name) for name in NAMES),
        *(replace(good, owner=owner) for owner in OWNERS),
        *(replace(good, capacity=capacity) for capacity in CAPACITIES),
    )
    for each in bad:
        try:
            harness.backend.execute([SetResources(resources=(each,))])
        except InvalidResource:
            continue
        raise AssertionError(f"{each} was accepted")
    assert not harness.backend.observe().resources


def an_end_by_a_signal_names_it(harness: Harness) -> None:
    """23: the exit code is minus the signal's number, as in Python."""
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.DIES))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, -6)
    assert "signal SIGABRT" in end.message


def a_gang_may_span_nodes(harness: Harness) -> None:
    """9: it requires its name on each of its nodes, and starts when the last of them has it."""
    harness.spread(2)
    north, south, start = spread_gang(harness, "pair", 0, 1)
    harness.backend.execute([start, north])
    assert state_of(harness, "pair") is GangState.WAITING
    harness.backend.execute([south])
    harness.wait_until(is_in(GangState.RUNNING, "pair"))


def a_lost_node_takes_its_gangs_and_names_along_and_no_others(harness: Harness) -> None:
    """19: a gang with one rank there is lost whole; a gang on the other node runs on."""
    harness.spread(3)
    harness.backend.execute([*spread_gang(harness, "pair", 0, 1), *spread_gang(harness, "stays", 2)])
    nodes = [node.name for node in harness.wait_until(is_in(GangState.RUNNING, "pair", "stays")).cluster.nodes]
    harness.lose_node(nodes[0])
    seen = harness.wait_until(is_in(GangState.ENDED, "pair"))
    lost = find(seen, "pair")
    assert lost is not None
    assert lost.exit is not None
    assert lost.exit.outcome is GangOutcome.LOST
    assert [node.name for node in seen.cluster.nodes] == nodes[1:]
    assert all(each.node != nodes[0] for each in seen.resources)
    assert is_in(GangState.RUNNING, "stays")(seen)
    assert harness.processes() == 1


def a_node_that_returns_is_told_again_and_used_again(harness: Harness) -> None:
    """20: resources under lease are set again with their old generation and count once; new gangs start there."""
    harness.spread(2)
    named = {node: _named("movable", node, harness.now_s() + MOST_RETURN_S) for node in _nodes(harness)}
    first, *_ = named
    harness.backend.execute([SetResources(resources=tuple(named.values())), *spread_gang(harness, "j1", 0)])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.lose_node(first)
    harness.wait_until(is_in(GangState.ENDED, "j1"))
    harness.return_node(first)
    harness.wait_until(lambda seen: first in {node.name for node in seen.cluster.nodes})
    for _ in range(2):
        harness.backend.execute([SetResources(resources=tuple(named.values()))])
    there = [(each.node, each.capacity) for each in harness.backend.observe().resources if each.name == "movable"]
    assert sorted(there) == sorted((node, 1) for node in named)
    harness.backend.execute(spread_gang(harness, "j1", 0, generation=2))
    harness.wait_until(is_in(GangState.RUNNING, "j1", generation=2))


def a_thousand_names_on_a_thousand_nodes_are_one_batch(harness: Harness) -> None:
    """27: set, seen, matched, deleted."""
    harness.spread(MANY)
    named = [_named(f"name-{index}", node, harness.now_s() + 60) for index, node in enumerate(_nodes(harness))]
    harness.backend.execute([SetResources(resources=tuple(named))])
    seen = harness.backend.observe()
    assert {(each.name, each.node) for each in seen.resources} == {(each.name, each.node) for each in named}
    harness.backend.execute(spread_gang(harness, "last", MANY - 1))
    harness.wait_until(is_in(GangState.RUNNING, "last"))
    gone = tuple(replace(each, capacity=0, generation=2) for each in named)
    harness.backend.execute([SetResources(resources=gone), *stop("last")])
    assert [each.name for each in harness.backend.observe().resources] == ["gang-last-1"]


def _half(harness: Harness, job_id: str, *, partner: str) -> list[Instruction]:
    """A gang of a packed pair on `a-0`, and the resource it requires."""
    return [resource(harness, f"gang-{job_id}-1"), replace(launch(harness, job_id), shares_with=partner)]


def _nodes(harness: Harness) -> list[str]:
    return [node.name for node in harness.backend.observe().cluster.nodes]


def _named(name: str, node: str, expires_at_s: float) -> EphemeralResource:
    return EphemeralResource(
        name=name, node=node, capacity=1, owner="app", lease_expires_at_s=expires_at_s, generation=1
    )


CHECKS: tuple[Check, ...] = (
    a_capacity_is_never_exceeded,
    what_is_held_is_shown,
    a_packed_pair_shares_its_workers_and_nobody_else_does,
    a_running_gang_makes_room_for_a_partner_in_place,
    a_name_that_was_deleted_is_not_revived_by_an_older_word,
    what_cannot_be_a_name_is_refused_before_the_cluster_sees_it,
    an_end_by_a_signal_names_it,
    a_gang_may_span_nodes,
    a_lost_node_takes_its_gangs_and_names_along_and_no_others,
    a_node_that_returns_is_told_again_and_used_again,
    a_thousand_names_on_a_thousand_nodes_are_one_batch,
)
