"""Elastic jobs in whole rounds: a driver with a virtual cluster, whose gangs have the speeds given here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.jobs.sizes import resized
from gavel.types import Job, JobState, worker_s_of
from gavel.types.elastic_kinds import elastic_kind
from tests.builders import a_cluster, a_job
from tests.mechanism.world import World

SIZES = (1, 2, 4)
KIND = elastic_kind("ann/net", 64)
GROWTH = {1: 10.0, 2: 18.0, 3: 26.0, 4: 32.0, 8: 50.0}
RATES = {(KIND, size, "fast"): rate for size, rate in GROWTH.items()}
RATES |= {("mlp", size, "fast"): 10.0 for size in GROWTH}
ELASTIC = {"kind": KIND, "sizes": SIZES, "global_batch": 64, "argv": ("virtual", KIND)}


def a_world(workers: int, **settings: Any) -> World:
    return World(cluster=a_cluster(fast=workers), rates=RATES, switch_cost_s=0.2, **settings)


def elastic(world: World, steps: int = 5000, **over: Any) -> str:
    return world.submit(steps, **{**ELASTIC, **over})


def sizes_of(world: World, job_id: str) -> list[int]:
    """How many workers each gang of the job had, oldest first."""
    by_generation = {lease.generation: len(lease.worker_ids) for lease in world.leases_of(job_id)}
    return [by_generation[generation] for generation in sorted(by_generation)]


def test_a_job_alone_grows_step_by_step_to_its_largest_size() -> None:
    world = a_world(8)
    job_id = elastic(world)
    world.run(lambda: world.is_done(job_id))
    assert sizes_of(world, job_id) == [1, 2, 4]
    assert world.job(job_id).spec.scale_factor == world.job(job_id).size == 4


def test_a_gang_is_never_larger_than_what_is_there() -> None:
    world = a_world(3)
    job_id = elastic(world)
    world.run(lambda: world.is_done(job_id))
    assert sizes_of(world, job_id) == [1, 2]


def test_jobs_that_come_make_the_others_smaller_and_all_run_at_once() -> None:
    world = a_world(4)
    first = elastic(world, 20000)
    world.run(lambda: world.job(first).size == 4)
    others = [elastic(world, 3000) for _ in range(3)]
    world.run(lambda: world.job(first).state is JobState.LEASED and world.job(first).size == 1)
    world.run(lambda: len(world.in_force().leases) == 4)
    assert {len(lease.worker_ids) for lease in world.in_force().leases} == {1}
    world.run(lambda: world.is_done(*others))
    world.run(lambda: world.job(first).size == 4)


def test_a_rigid_gang_is_not_starved_by_elastic_jobs() -> None:
    world = a_world(4)
    jobs = [elastic(world, 100_000) for _ in range(3)]
    world.run(lambda: all(world.job(job_id).state is JobState.LEASED for job_id in jobs))
    rigid = world.submit(1000, scale_factor=4)
    world.run(lambda: world.is_done(rigid), ticks=3000)
    assert all(world.job(job_id).state is not JobState.FAILED for job_id in jobs)


@pytest.mark.parametrize("price_s", [0.2, 3.0])
def test_a_gang_of_all_workers_has_its_turns_beside_elastic_jobs_that_have_nearly_all(price_s: float) -> None:
    """1 three elastic jobs have a worker each, of 4, 2 a rigid gang of 4 comes, 3 it runs again and again."""
    world = World(cluster=a_cluster(fast=4), rates=RATES, switch_cost_s=price_s)
    for _ in range(3):
        elastic(world, 10**7, sizes=(1, 3))
    world.run_until_s(60)
    rigid, since = world.submit(10**7, scale_factor=4), world.store.rounds(limit=1)[0].round_index
    world.run_until_s(world.clock.now_s() + 1000)
    turns = [lease.round_index for lease in world.leases_of(rigid)]
    targets = [_target(world, index, rigid) for index in range(since + 1, world.store.rounds(limit=1)[0].round_index)]
    assert len(turns) >= 0.5 * sum(targets) > 10 and turns[-1] > since + 80, (turns, sum(targets))


def _target(world: World, index: int, job_id: str) -> float:
    """The target fraction of a job in a round."""
    record = world.store.round(index)
    rows = zip(record.allocation.combinations, record.allocation.time_fraction, strict=True)
    return float(sum(share.sum() for members, share in rows if job_id in members))


def test_a_change_of_size_that_does_not_pay_is_not_made() -> None:
    sizes = {}
    for cost_s in (1.0, 1000.0):
        world = World(cluster=a_cluster(fast=8), rates=RATES, switch_cost_s=cost_s, round_duration_s=100.0)
        job_id = elastic(world, 5000)
        world.run(lambda: world.is_done(job_id), ticks=2000)  # noqa: B023  called in this turn
        sizes[cost_s] = sizes_of(world, job_id)
    assert sizes == {1.0: [1, 2, 4], 1000.0: [1]}


def test_the_size_in_force_survives_a_restart_of_the_service() -> None:
    world = a_world(8)
    job_id = elastic(world, 100_000)
    world.run(lambda: world.job(job_id).size == 4 and world.job(job_id).state is JobState.LEASED)
    generation = world.job(job_id).generation
    world.driver = world.new_driver()
    world.run_until_s(world.clock.now_s() + 50)
    assert (world.job(job_id).size, world.job(job_id).generation) == (4, generation)


def test_a_gang_that_is_wanted_at_another_size_goes_on_from_its_checkpoint() -> None:
    world = a_world(8)
    job_id = elastic(world)
    seen: list[int] = []

    def is_done() -> bool:
        seen.append(world.job(job_id).steps_done)
        return world.is_done(job_id)

    world.run(is_done)
    assert seen == sorted(seen) and world.job(job_id).losses == 0


@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=8), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_change_of_size_keeps_the_worker_seconds(sizes: list[int], held_s: float, shared_s: float) -> None:
    spec = {"sizes": SIZES, "global_batch": 64}
    before: Job = a_job(spec=spec, received_s={"fast": held_s + shared_s}, shared_s={"fast": shared_s})
    after = before
    for size in sizes:
        after = resized(after, size)
    assert after.spec.scale_factor == after.size == sizes[-1]
    assert worker_s_of(after) == pytest.approx(worker_s_of(before))


def test_a_rigid_job_has_no_other_size() -> None:
    job = a_job()
    assert resized(job, 4) is job


def test_usage_is_charged_at_the_size_that_each_gang_had() -> None:
    world = a_world(4)
    job_id = elastic(world, 3000)
    world.run(lambda: world.is_done(job_id))
    held = sum(worker_s_of(world.job(job_id)).values())
    (usage,) = world.store.snapshot().usage.values()
    assert usage.worker_hours * 3600 == pytest.approx(held)
