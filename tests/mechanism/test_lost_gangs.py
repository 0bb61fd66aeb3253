"""A lost gang is nobody's failure: its job starts again, after pauses if that goes on, and not for ever."""

from dataclasses import replace

import pytest

from gavel.mechanism.jobs.lifecycle import shortened_pause
from gavel.types import JobState
from tests.builders import a_job
from tests.mechanism.world import GRACE_S, RATES, WatchedCluster, World, a_cluster_of_nodes

STATED = {"throughput_steps_per_s": {"fast": 10.0}}


def a_world(**over: object) -> World:
    return World(cluster=a_cluster_of_nodes(n0="fast", n1="fast"), gang_grace_s=GRACE_S, **over)


def lose_its_node(world: World, job_id: str) -> None:
    """The node of the job's gang goes away and comes back."""
    world.run(lambda: world.job(job_id).state is JobState.LEASED, ticks=200)
    world.driver.tick()
    node = next(name for name in ("n0", "n1") if job_id in world.holding(name))
    world.backend.lose_node(node)
    world.driver.tick()
    assert world.backend.seen.cluster.workers, "the other node is there"
    world.backend.return_node(node)


def test_the_first_loss_costs_no_pause_and_later_ones_double_it() -> None:
    world = a_world(lost_backoff_s=4.0)
    job_id = world.submit(10_000, **STATED)
    pauses = []
    for _ in range(4):
        lose_its_node(world, job_id)
        pauses.append(max(0.0, world.job(job_id).retry_at_s - world.clock.now_s()))
    assert pauses == pytest.approx([0.0, 4.0, 8.0, 16.0])
    assert world.job(job_id).losses == 4 and world.job(job_id).preemptions == 0
    assert "after 16 s" in world.job(job_id).message


def test_a_job_that_pauses_holds_no_worker_and_starts_by_itself() -> None:
    world = a_world(lost_backoff_s=30.0)
    job_id = world.submit(400, **STATED)
    for _ in range(2):
        lose_its_node(world, job_id)
    until_s = world.job(job_id).retry_at_s
    world.run_until_s(until_s - 0.1)
    assert world.job(job_id).state is JobState.QUEUED
    world.run(lambda: world.is_done(job_id))
    assert world.job(job_id).finished_at_s == pytest.approx(until_s + 40.0, abs=1.0)


@pytest.mark.parametrize(("losses", "waits_s"), [(0, 0.0), (1, 0.0), (2, 4.0), (3, 8.0)])
def test_a_clock_that_is_set_back_makes_no_pause_longer(losses: int, waits_s: float) -> None:
    """Also where it is that of another host, whose service leads now."""
    job = replace(a_job(), losses=losses, retry_at_s=5000.0)
    assert shortened_pause(job, 1000.0, backoff_s=4.0).retry_at_s == 1000.0 + waits_s
    assert shortened_pause(job, 4999.9, backoff_s=4.0).retry_at_s == min(5000.0, 4999.9 + waits_s)
    assert shortened_pause(job, 5000.0, backoff_s=4.0) is job


def test_a_durable_step_forgives_earlier_losses() -> None:
    world = a_world(lost_retries=1, lost_backoff_s=0.0)
    job_id = world.submit(10_000, **STATED)
    other = [world.submit(10_000, **STATED) for _ in range(2)]
    lose_its_node(world, job_id)
    assert world.job(job_id).losses == 1
    world.run(lambda: world.job(job_id).steps_done > 0)
    assert world.job(job_id).losses == 0 and all(world.job(each).losses <= 1 for each in other)


def test_a_gang_that_has_reported_and_is_nowhere_is_lost_at_once() -> None:
    """Its nodes have lost their disks: the same gang must not start again, whose reports would count as old ones."""
    world = a_world()
    job_id = world.submit(400, **STATED)
    world.run(lambda: world.job(job_id).has_reported)
    before = world.job(job_id).generation
    world.backend = WatchedCluster(a_cluster_of_nodes(n0="fast", n1="fast"), RATES, world.clock, 0.0, GRACE_S)
    world.driver = world.new_driver()
    world.driver.tick()
    job = world.job(job_id)
    assert (job.losses, job.generation, job.has_reported) == (1, before + 1, False)
    world.run(lambda: world.is_done(job_id))
    assert (world.job(job_id).state, world.job(job_id).steps_done) == (JobState.COMPLETED, 400)


def test_who_loses_every_gang_fails_with_a_reason() -> None:
    world = a_world(lost_retries=2, lost_backoff_s=0.0)
    job_id = world.submit(10_000, **STATED)
    for _ in range(2):
        lose_its_node(world, job_id)
    assert not world.job(job_id).state.is_terminal
    lose_its_node(world, job_id)
    job = world.job(job_id)
    assert (job.state, job.reason) == (JobState.FAILED, "LostTooOften")
    assert "lost 3 gangs in a row without a durable step" in job.message
