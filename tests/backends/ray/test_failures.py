"""Failures on a real Ray cluster: agents, nodes, the control service, the scheduler itself."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, find, gang, is_in, spread_gang, state_of, stop
from gavel.backends.nodes.backend import ANSWER_LIMIT_S
from gavel.backends.nodes.protocol import Seen, Wanted
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.local_cluster import LocalRayCluster
from gavel.errors import BackendUnavailable
from gavel.ports import Instruction, LaunchGang, SetResources
from gavel.types import GangOutcome, GangState, Observation
from gavel.types.rounds import LOST_MARGIN_S
from tests.backends.clusters import GRACE_S, eventually, tolerant
from tests.backends.ray.clusters import RayHarness, agent_pids

pytestmark = pytest.mark.ray


@pytest.fixture
def running(ray_harness: RayHarness) -> RayHarness:
    """A gang of two runs."""
    ray_harness.backend.execute(gang(ray_harness, "pair", "a-0", "a-1", lasts_s=120))
    ray_harness.wait_until(is_in(GangState.RUNNING, "pair"))
    return ray_harness


@pytest.fixture
def two_nodes(ray_harness: RayHarness) -> Iterator[RayHarness]:
    """The harness on a cluster of its own, of two nodes, with which a test may do anything."""
    ray_harness.spread(2)
    yield ray_harness


def test_a_killed_agent_is_started_again_and_finds_its_gangs(running: RayHarness, one_node: LocalRayCluster) -> None:
    """1 kill -9 of the agent, 2 the gang's processes stay, 3 the next agent tells of them and obeys."""
    before = running.all_processes()
    (agent,) = agent_pids(one_node)
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: agent_pids(one_node) not in ([], [agent]), 60)
    seen = running.wait_until(lambda view: bool(view.cluster.workers) and is_in(GangState.RUNNING, "pair")(view))
    assert running.all_processes() == before
    assert len(seen.gangs) == 1
    running.backend.execute(stop("pair"))
    assert exit_of(running, "pair").outcome is GangOutcome.PREEMPTED


def test_a_hung_agent_delays_no_look_and_stops_no_gang(two_nodes: RayHarness) -> None:
    """1 one node's agent hangs, 2 looks take no longer than their limit, 3 its node says so, 4 the other one works."""
    harness = two_nodes
    assert harness.own is not None
    first = harness.backend.observe().cluster.workers[0].node
    harness.backend.execute([*gang(harness, "here", "a-0", lasts_s=120)])
    harness.wait_until(is_in(GangState.RUNNING, "here"))
    (hung,) = set(agent_pids(harness.own)) & set(harness.own.pids(first))
    os.kill(hung, signal.SIGSTOP)
    looks: list[float] = []

    def is_told(seen: Observation) -> bool:
        return any(node.problem == "its agent does not answer" for node in seen.cluster.nodes)

    def look() -> bool:
        began_s = time.process_time()
        seen = harness.backend.observe()
        looks.append(time.process_time() - began_s)
        return is_told(seen)

    eventually(look, 30)
    seen = harness.backend.observe()
    assert is_in(GangState.RUNNING, "here")(seen)
    assert first not in {worker.node for worker in seen.cluster.workers}
    assert max(looks) < ANSWER_LIMIT_S
    os.kill(hung, signal.SIGCONT)
    harness.wait_until(lambda view: not is_told(view) and is_in(GangState.RUNNING, "here")(view))


def test_a_job_whose_node_is_lost_starts_elsewhere_only_when_its_lease_is_over(two_nodes: RayHarness) -> None:
    """Where only the network is cut, the old gang runs on: 1 lost at once, 2 the next one waits, 3 and then starts."""
    harness = two_nodes
    nodes = [node.name for node in harness.backend.observe().cluster.nodes]
    expires_at_s = harness.now_s() + 20
    harness.backend.execute(gang(harness, "j1", "a-0", lasts_s=20))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    assert harness.own is not None
    harness.own.kill_node(nodes[0])  # its gang runs on
    assert exit_of(harness, "j1").outcome is GangOutcome.LOST
    set_resource, start = gang(harness, "j1", "a-1", generation=2)
    assert isinstance(set_resource, SetResources)
    there = replace(set_resource.resources[0], node=nodes[1])
    harness.backend.execute([SetResources(resources=(there,)), start])
    waiting = find(harness.backend.observe(), "j1", generation=2)
    assert waiting is not None
    if harness.now_s() < expires_at_s:
        assert waiting.state is GangState.WAITING
        assert nodes[0] in waiting.waiting_for
    began = find(harness.wait_until(is_in(GangState.RUNNING, "j1", generation=2)), "j1", generation=2)
    assert began is not None and began.started_at_s is not None
    assert began.started_at_s > expires_at_s + GRACE_S


def test_gangs_outlive_all_of_ray_and_are_adopted_by_the_next_cluster(two_nodes: RayHarness) -> None:
    """1 every Ray process is killed, 2 gangs run on, 3 Ray starts anew on the same nodes, 4 nothing was doubled."""
    harness = two_nodes
    cluster = harness.own
    assert cluster is not None
    harness.backend.execute([_lasting(each) for each in spread_gang(harness, "j1", 1)])
    before = find(harness.wait_until(is_in(GangState.RUNNING, "j1")), "j1")
    processes = harness.all_processes()
    cluster.kill_all()
    assert harness.all_processes() == processes
    eventually(lambda: state_of_or_none(harness) is GangState.RUNNING)
    cluster.start()
    eventually(tolerant(harness, lambda seen: len(seen.cluster.workers) == 2), 90)
    after = find(harness.wait_until(is_in(GangState.RUNNING, "j1")), "j1")
    assert harness.all_processes() == processes
    assert before is not None and after is not None
    assert after.worker_ids == before.worker_ids
    harness.backend.execute(stop("j1"))
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


def test_an_end_that_came_while_all_of_ray_was_gone_is_told_later(two_nodes: RayHarness) -> None:
    """1 a gang runs, 2 every Ray process is killed, 3 its lease ends it, 4 Ray is back: preempted, and not lost."""
    harness = two_nodes
    assert harness.own is not None
    harness.backend.execute([_lasting(each, -52) for each in spread_gang(harness, "j1", 1)])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.own.kill_all()
    eventually(lambda: not harness.all_processes())
    expired_at_s = harness.now_s() + GRACE_S + 2 * LOST_MARGIN_S
    eventually(lambda: state_of_or_none(harness) is not GangState.ENDED and harness.now_s() > expired_at_s)
    harness.own.start()
    eventually(tolerant(harness, is_in(GangState.ENDED, "j1")), 90)
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


def test_a_service_that_lost_its_folder_adopts_what_the_nodes_know(running: RayHarness) -> None:
    before = running.all_processes()
    running.crash()
    running.backend = running.open(state_dir=running.folder / "another")
    adopted = find(running.wait_until(is_in(GangState.RUNNING, "pair")), "pair")
    assert adopted is not None
    assert adopted.worker_ids == ("a-0", "a-1")
    assert running.all_processes() == before
    running.backend.execute(gang(running, "next", "a-0"))
    assert state_of(running, "next") is GangState.WAITING
    running.backend.execute(stop("pair"))
    running.wait_until(is_in(GangState.RUNNING, "next"))


def test_a_launch_that_was_written_down_and_not_sent_can_be_made_again(
    ray_harness: RayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 a service dies before it sends a launch, 2 for the next one there is no such gang, 3 it launches it, once."""
    send = ray_harness.backend._link.exchange

    def dies(wanted: Wanted) -> Seen:
        if any(shard.launch for order in wanted.orders.values() for shard in order.shards):
            raise BackendUnavailable("it died")
        return send(wanted)

    monkeypatch.setattr(ray_harness.backend._link, "exchange", dies)
    launch = gang(ray_harness, "pair", "a-0", "a-1", lasts_s=120)
    with pytest.raises(BackendUnavailable):
        while True:  # until its group is reserved
            ray_harness.backend.execute(launch)
            ray_harness.backend.observe()
    ray_harness.crash()
    ray_harness.recover()
    assert find(ray_harness.backend.observe(), "pair") is None
    ray_harness.backend.execute(launch)
    ray_harness.wait_until(is_in(GangState.RUNNING, "pair"))
    eventually(lambda: ray_harness.processes() == 2)


def test_the_service_that_started_last_has_the_cluster(running: RayHarness) -> None:
    """Two services on one cluster: the older one is told, and decides nothing any more."""
    newer: RayBackend = running.open(state_dir=running.folder / "another")
    try:

        def is_refused() -> bool:
            try:
                running.backend.observe()
            except BackendUnavailable as problem:
                return "taken" in str(problem)
            return False

        eventually(is_refused)
        assert is_in(GangState.RUNNING, "pair")(newer.observe())
    finally:
        newer.close()


def test_a_bridge_that_dies_is_started_again(running: RayHarness) -> None:
    before = running.all_processes()
    bridge = running.backend._link._process
    assert bridge is not None
    bridge.kill()
    bridge.wait()
    eventually(tolerant(running, lambda seen: not running.backend.notes() and bool(seen.cluster.workers)), 60)
    assert state_of(running, "pair") is GangState.RUNNING
    assert running.all_processes() == before


def test_groups_of_nobody_are_removed(running: RayHarness, tmp_path: Path) -> None:
    """22: a service ends without a word and its gangs die; the next one finds their group, and frees it."""
    running.crash()
    for pid in running.all_processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.folder = tmp_path / "fresh"
    running.recover()
    running.backend.execute(gang(running, "next", "a-0", "a-1"))
    running.wait_until(is_in(GangState.RUNNING, "next"), 20)


def state_of_or_none(harness: RayHarness) -> GangState | None:
    with suppress(BackendUnavailable):
        return state_of(harness, "j1")
    return None


def _lasting(instruction: Instruction, more_s: float = 540) -> Instruction:
    """With a longer lease, since Ray takes its time to come up, or a shorter one."""
    if isinstance(instruction, LaunchGang):
        return replace(instruction, lease_expires_at_s=instruction.lease_expires_at_s + more_s)
    return instruction
