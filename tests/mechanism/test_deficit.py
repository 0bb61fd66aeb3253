"""How far a job is behind its isolated share: one number, from what is stored, whoever asks and after any restart."""

import pytest

from gavel.mechanism.explaining.fairness import deficit_s
from gavel.mechanism.planning.problem import attained_service_s
from gavel.store.memory import MemoryStore
from tests.builders import a_cluster
from tests.mechanism.world import World


def two_jobs_on_one_worker() -> tuple[World, str, str]:
    """Each has half of the worker as its share; the first runs, the second waits."""
    world = World(store=MemoryStore(), cluster=a_cluster(fast=1))
    return world, world.submit(100_000), world.submit(200_000)


def behind_s(world: World, job_id: str) -> float:
    behind = deficit_s(world.job(job_id), world.clock.now_s())
    assert behind is not None
    return behind


def test_it_is_the_one_that_the_policy_is_asked_with() -> None:
    """Also while no checkpoint holds the steps: those that were reported count, once."""
    world, runs, waits = two_jobs_on_one_worker()
    world.run_until_s(95.0)
    job = world.job(runs)
    assert job.steps_reported > job.steps_done == 0
    assert attained_service_s(job, world.clock.now_s()) > 90
    assert behind_s(world, runs) == pytest.approx(-95.0, abs=12.0)  # twice as fast as with half a worker
    assert behind_s(world, waits) == pytest.approx(95.0, abs=1.0)
    problem = world.store.snapshot().round_records[-1].problem
    asked = dict(zip(problem.job_ids, (problem.age_s - problem.isolated_time_s).tolist(), strict=True))
    since_s = world.clock.now_s() - problem.now_s
    assert asked[waits] + since_s == pytest.approx(behind_s(world, waits), abs=1e-6)
    assert asked[runs] - since_s == pytest.approx(behind_s(world, runs), abs=6.0)


def test_a_restart_does_not_change_it() -> None:
    """It follows from what is stored: the instant of submission, and the isolated time of the reported steps."""
    world, *both = two_jobs_on_one_worker()
    world.run_until_s(95.0)
    before = [behind_s(world, each) for each in both]
    world.driver = world.new_driver()
    assert [behind_s(world, each) for each in both] == before
    world.run_until_s(145.0)
    runs, waits = (behind_s(world, each) for each in both)
    assert runs == pytest.approx(before[0] - 50.0, abs=12.0) and waits == pytest.approx(before[1] + 50.0, abs=1.0)
