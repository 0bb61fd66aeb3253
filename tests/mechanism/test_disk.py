"""With too little disk nothing is started, what runs goes on, and all continues once there is room."""

from typing import Any

from gavel.mechanism.driver import Driver
from gavel.mechanism.explaining.explanation import State, explain
from gavel.types import DiskState, JobState, Reason, Tier
from tests.builders import a_cluster, a_job
from tests.mechanism.world import World


class WorldWithDisk(World):
    """`disk` is what the driver is told."""

    disk = DiskState()

    def new_driver(self) -> Driver:
        driver = super().new_driver()
        driver._disk = lambda: self.disk
        return driver


def a_world(**settings: Any) -> WorldWithDisk:
    return WorldWithDisk(cluster=a_cluster(fast=2), **settings)


def test_below_the_reserve_gangs_go_on_and_none_is_started() -> None:
    world = a_world()
    running = world.submit(1000)
    world.run(lambda: world.job(running).state is JobState.LEASED)
    world.disk = DiskState(low="2 MB are free.")
    waiting = [world.submit(10) for _ in range(4)]
    generation = world.job(running).generation
    world.run_until_s(50.0)
    assert (world.job(running).state, world.job(running).generation) == (JobState.LEASED, generation)
    assert {(world.job(each).reason.value, world.job(each).message) for each in waiting} == {
        ("LowDisk", "2 MB are free.")
    }
    world.disk = DiskState()
    world.run(lambda: world.is_done(running, *waiting))


def test_a_user_above_the_budget_waits_and_others_do_not() -> None:
    world = a_world()
    world.disk = DiskState(over_budget={"ann": "Too much."})
    ann, bob = world.submit(10, user="ann"), world.submit(10, user="bob")
    world.run(lambda: world.is_done(bob))
    assert (world.job(ann).state, world.job(ann).reason.value) == (JobState.QUEUED, "DiskBudgetExceeded")


def test_the_explanation_of_a_job_names_the_disk_with_the_figures() -> None:
    job = a_job(spec={"tier": "default"}, reason=Reason.LOW_DISK, message="2 MB are free.")
    state = State(
        jobs={job.id: job}, tiers={"default": Tier(name="default")}, cluster=a_cluster(fast=2), record=None, now_s=5.0
    )
    why = explain(job, state)
    assert (why.code, why.message) == (Reason.LOW_DISK, "2 MB are free.") and "disk_reserve_bytes" in why.would_unblock[
        0
    ]


def test_what_runs_is_asked_for_a_checkpoint_once_as_soon_as_the_disk_is_nearly_full() -> None:
    world = a_world()
    running = [world.submit(100_000) for _ in range(2)]
    world.run(lambda: all(world.job(each).state is JobState.LEASED for each in running))
    world.run_until_s(world.clock.now_s() + 25)
    before = [world.job(each).checkpoint for each in running]
    generations = [world.job(each).generation for each in running]
    world.disk = DiskState(low="2 MB are free.", low_since_s=world.clock.now_s())
    world.run(lambda: all(world.job(each).checkpoint != old for each, old in zip(running, before, strict=True)))
    saved = [world.job(each).checkpoint for each in running]
    world.run_until_s(world.clock.now_s() + 60)
    assert [world.job(each).checkpoint for each in running] == saved  # one checkpoint, however long it lasts
    assert [world.job(each).generation for each in running] == generations
