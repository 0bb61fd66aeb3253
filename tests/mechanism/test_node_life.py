"""Nodes are cordoned, drained, lost, found again and new, under the production driver."""

import pytest

from gavel.types import Cluster, JobState, NodeState
from tests.mechanism.world import GRACE_S, World, a_cluster_of_nodes

LONG = 100_000
TWO = {"n0": "fast fast", "n1": "slow slow"}


def a_world(cluster: Cluster | None = None, jobs: int = 4, **over: object) -> tuple[World, list[str]]:
    """A world whose every worker is busy, in the middle of a round that began after the kinds were measured."""
    world = World(cluster=cluster or a_cluster_of_nodes(**TWO), gang_grace_s=GRACE_S, **over)
    ids = [world.submit(LONG, throughput_steps_per_s={"fast": 10.0, "slow": 5.0}) for _ in range(jobs)]
    world.run_until_s(33.0)
    return world, ids


def state(world: World, name: str) -> NodeState:
    return world.store.snapshot().nodes[name].state


def test_a_cordoned_node_keeps_its_gangs_to_the_end_of_their_leases_and_gets_no_more() -> None:
    world, _ = a_world()
    before = world.holding("n1")
    world.ask("node.cordon", "node/n1")
    world.driver.tick()
    assert state(world, "n1") is NodeState.CORDONED
    world.run_until_s(39.0)
    assert world.holding("n1") == before and len(before) == 2
    world.run_until_s(52.0)
    assert world.holding("n1") == set() and len(world.holding("n0")) == 2
    assert all(set(lease.worker_ids) <= {"n0-0", "n0-1"} for lease in world.in_force().leases)
    world.ask("node.uncordon", "node/n1")
    world.run_until_s(72.0)
    assert state(world, "n1") is NodeState.READY and len(world.holding("n1")) == 2


def test_a_drained_node_is_empty_when_the_window_ends_and_nothing_is_lost() -> None:
    """The window ends in the middle of a round: gangs checkpoint and stop before, and go on elsewhere later."""
    world, ids = a_world()
    leaving = world.holding("n1")
    world.ask("node.drain", "node/n1", window_s=4.0)
    world.driver.tick()
    assert state(world, "n1") is NodeState.DRAINING
    world.run_until_s(33.0 + 4.0)
    assert world.holding("n1") == set()
    world.driver.tick()
    assert state(world, "n1") is NodeState.DRAINED
    for job_id in leaving:
        job = world.job(job_id)
        assert job.state is JobState.QUEUED and job.losses == 0
        assert job.steps_done >= 5.0 * (37.0 - GRACE_S - 30.0) - 1, "it checkpointed when it stopped"
    world.run_until_s(65.0)
    assert {job_id for job_id in ids if world.leases_of(job_id)[-1].accelerator_type == "fast"} & leaving


def test_a_window_longer_than_a_round_lets_gangs_leave_at_the_end_of_their_lease() -> None:
    world, _ = a_world()
    world.ask("node.drain", "node/n1", window_s=60.0)
    world.run_until_s(39.9)
    assert len(world.holding("n1")) == 2
    world.run_until_s(41.0)
    assert world.holding("n1") == set() and state(world, "n1") is NodeState.DRAINED


def test_a_round_planned_ahead_is_not_carried_out_on_a_node_that_is_being_drained() -> None:
    """1. The next round is planned. 2. A drain begins. 3. No gang that is not there already starts there."""
    world, _ = a_world(jobs=8)
    world.run_until_s(38.0)  # planned ahead a quarter of a round before its start
    assert world.store.rounds()[0].starts_at_s == pytest.approx(40.0)
    there = world.holding("n1")
    world.ask("node.drain", "node/n1", window_s=30.0)
    world.run_until_s(49.0)
    assert world.holding("n1") <= there


def test_a_job_that_cannot_be_preempted_stays_until_the_window_ends() -> None:
    world = World(cluster=a_cluster_of_nodes(**TWO), gang_grace_s=GRACE_S)
    rates = {"fast": 10.0, "slow": 5.0}
    ids = [world.submit(LONG, preemptible=False, throughput_steps_per_s=rates) for _ in range(4)]
    world.run_until_s(33.0)
    staying = world.holding("n1")
    generations = {job_id: world.job(job_id).generation for job_id in ids}
    world.ask("node.drain", "node/n1", window_s=25.0)
    world.run_until_s(57.0)
    assert world.holding("n1") == staying and len(staying) == 2
    assert max(lease.expires_at_s for job_id in staying for lease in world.leases_of(job_id)) <= 58.0
    world.run_until_s(58.0)
    assert world.holding("n1") == set() and state(world, "n1") is NodeState.DRAINED
    assert all(world.job(job_id).generation == generations[job_id] for job_id in ids if job_id not in staying)
    assert all(world.job(job_id).steps_done > 0 and world.job(job_id).losses == 0 for job_id in staying)


def test_a_job_that_cannot_be_preempted_keeps_its_workers_round_after_round() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast"), gang_grace_s=GRACE_S)
    rates = {"fast": 10.0}
    first = world.submit(500, preemptible=False, throughput_steps_per_s=rates)
    other = world.submit(100, throughput_steps_per_s=rates)
    world.run(lambda: world.is_done(first, other))
    assert (world.job(first).generation, world.job(first).preemptions) == (1, 0)
    assert world.job(other).started_at_s == pytest.approx(50.0, abs=1.0)


def test_a_lost_node_costs_its_gangs_only_and_they_start_again_elsewhere() -> None:
    world, _ = a_world()
    lost = world.holding("n0")
    world.backend.lose_node("n0")
    world.driver.tick()
    assert state(world, "n0") is NodeState.LOST
    assert all(world.job(job_id).losses == 1 for job_id in lost)
    world.run_until_s(52.0)
    assert world.holding("n0") == set() and len(world.holding("n1")) == 2
    world.backend.return_node("n0")
    world.run_until_s(72.0)
    assert state(world, "n0") is NodeState.READY and len(world.holding("n0")) == 2


def test_a_cordon_outlives_the_loss_of_its_node_and_a_restart() -> None:
    world, _ = a_world()
    world.ask("node.cordon", "node/n0")
    world.driver.tick()
    world.backend.lose_node("n0")
    world.driver.tick()
    world.driver = world.new_driver()
    world.backend.return_node("n0")
    world.run_until_s(65.0)
    assert state(world, "n0") is NodeState.CORDONED and world.holding("n0") == set()


def test_a_node_that_went_away_is_forgotten_after_a_day_unless_it_is_cordoned() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="fast", n2="fast"))
    world.driver.tick()
    world.ask("node.cordon", "node/n1")
    world.driver.tick()
    for name in ("n0", "n1"):
        world.backend.lose_node(name)
    world.driver.tick()
    assert list(world.store.snapshot().nodes) == ["n0", "n1", "n2"]
    world.clock.advance(86_401.0)
    world.driver.tick()
    assert list(world.store.snapshot().nodes) == ["n1", "n2"]


def test_a_node_of_a_new_type_is_used_as_soon_as_it_is_there() -> None:
    rates = {("mlp", 1, name): rate for name, rate in (("fast", 10.0), ("new", 40.0))}
    whole = a_cluster_of_nodes(n0="fast", n1="new")
    world = World(cluster=whole, rates=rates, gang_grace_s=GRACE_S)
    world.backend.drain_node("n1")
    ids = [world.submit(LONG) for _ in range(2)]
    world.run_until_s(15.0)
    assert world.store.cluster().accelerator_types == ("fast",)
    world.backend.return_node("n1")
    world.run_until_s(17.0)
    assert len(world.holding("n1")) == 1, "a waiting job did not wait for the boundary"
    world.run_until_s(65.0)
    measured = {row.accelerator_type: row.steps_per_s for row in world.store.throughputs() if row.measurements}
    assert measured["new"] == pytest.approx(40.0, rel=0.02)
    assert all("new" in world.job(job_id).rounds_received for job_id in ids)


def test_with_every_node_closed_nothing_is_planned_and_time_goes_on() -> None:
    world, ids = a_world()
    for name in ("n0", "n1"):
        world.ask("node.cordon", f"node/{name}")
    world.run_until_s(45.0)
    planned = world.store.rounds()[0].round_index
    world.run_until_s(500.0)
    assert world.store.rounds()[0].round_index == planned
    assert {world.job(job_id).state for job_id in ids} == {JobState.QUEUED}
    world.ask("node.uncordon", "node/n0")
    world.run_until_s(501.0)
    assert len(world.holding("n0")) == 2


def test_a_cluster_with_cordons_of_its_own_has_those_that_operators_asked_for() -> None:
    """1 a cordon and a drain, 2 what others undo is done again, 3 so it is after a restart, 4 both are taken back."""
    world, _ = a_world()
    world.backend.cordons = {"n0": False, "n1": False, "not known": False}
    world.ask("node.cordon", "node/n0")
    world.ask("node.drain", "node/n1", window_s=4.0)
    world.driver.tick()
    assert world.backend.cordons == {"n0": True, "n1": True, "not known": False}
    world.backend.cordons["n0"] = False
    world.driver = world.new_driver()
    world.driver.tick()
    assert world.backend.cordons["n0"]
    world.ask("node.uncordon", "node/n0")
    world.ask("node.uncordon", "node/n1")
    world.driver.tick()
    assert world.backend.cordons == {"n0": False, "n1": False, "not known": False}


def test_a_cluster_without_cordons_is_told_of_none() -> None:
    world, _ = a_world()
    world.ask("node.cordon", "node/n0")
    world.driver.tick()
    assert world.backend.cordons == {}
