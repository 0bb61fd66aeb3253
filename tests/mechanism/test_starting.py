"""A gang that starts slowly stays at the end of its round, within a bound; jobs that save nothing are told so."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.mechanism.planning.starting import LeaseSoFar, starting, stays
from gavel.mechanism.tick import Tick
from gavel.types import GangSeen, GangState, JobState, Reason, StartupTimes
from tests.builders import a_job
from tests.mechanism.world import GRACE_S, World, a_cluster_of_nodes

STATED = {"throughput_steps_per_s": {"fast": 10.0}}
LIMIT_S = 600.0


def a_lease(training_since_s: float | None = None, **over: object) -> LeaseSoFar:
    return LeaseSoFar(**{"started_at_s": 100.0, "training_since_s": training_since_s} | over)


@pytest.mark.parametrize(
    ("lease", "starts_at_s", "expected"),
    [
        (a_lease(), 130.0, True),  # it has reported nothing
        (a_lease(), 700.0, False),  # for as long as it may
        (a_lease(129.0), 130.0, False),  # it trains
        (a_lease(129.0, checkpoint_s=5.0), 130.0, True),  # and cannot have saved that yet
        (a_lease(129.0, checkpoint_s=5.0), 134.0, False),
        (a_lease(129.0, checkpoint_s=5.0, has_saved=True), 130.0, False),
        (a_lease(101.0, leases_without_checkpoint=2, longest_without_checkpoint_s=40.0), 140.0, True),
        (a_lease(101.0, leases_without_checkpoint=2, longest_without_checkpoint_s=40.0), 180.0, False),
        (a_lease(101.0, leases_without_checkpoint=1, longest_without_checkpoint_s=40.0), 140.0, False),
        (a_lease(longest_without_checkpoint_s=600.0), 110.0, False),  # a lease of the limit did not help
        (a_lease(129.0, has_saved=True, has_all_steps=True), 140.0, True),  # its program does what is after its steps
        (a_lease(129.0, has_saved=True, has_all_steps=True), 700.0, False),
    ],
)
def test_a_gang_stays_until_it_can_keep_what_it_does(lease: LeaseSoFar, starts_at_s: float, expected: bool) -> None:
    assert stays(lease, starts_at_s, start_limit_s=LIMIT_S) is expected


@pytest.mark.parametrize(("steps_done", "expected"), [(99, ()), (100, ("j1",))])
def test_a_program_that_has_done_all_steps_is_not_stopped_in_what_follows(
    steps_done: int, expected: tuple[str, ...]
) -> None:
    job = a_job(state=JobState.LEASED, generation=1, steps_done=steps_done, checkpoint="1-99", training_since_s=5.0)
    gang = GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=1.0,
    )
    tick = SimpleNamespace(startup_times=(), seen=SimpleNamespace(gangs=(gang,)))
    assert starting(cast(Tick, tick), [job], 10.0, start_limit_s=LIMIT_S) == expected


def a_world(startup_s: float, **settings: object) -> World:
    """One worker, rounds of 10 s."""
    cluster = a_cluster_of_nodes(n0="fast")
    return World(cluster=cluster, gang_grace_s=GRACE_S, switch_cost_s=startup_s, **settings)


def test_jobs_that_start_for_longer_than_a_round_take_turns_and_complete() -> None:
    world = a_world(25.0)
    ids = [world.submit(120, **STATED) for _ in range(2)]
    world.run(lambda: world.is_done(*ids))
    assert all(world.job(job_id).no_progress == "" for job_id in ids)


def test_without_a_limit_above_a_round_they_never_get_anywhere() -> None:
    world = a_world(25.0, start_limit_s=0)
    ids = [world.submit(120, **STATED) for _ in range(2)]
    world.run_until_s(600.0)
    assert [world.job(job_id).steps_done for job_id in ids] == [0, 0]


def test_every_round_in_which_a_gang_was_kept_is_planned_again_as_it_was() -> None:
    world = a_world(25.0)
    for _ in range(3):
        world.submit(200, **STATED)
    world.run_until_s(200.0)
    records = [world.store.round(index) for index in range(1, world.store.rounds()[0].round_index + 1)]
    assert any(record.inputs and record.inputs.starting for record in records)
    ledger = {}
    for record in records:
        again = planned_again(record, ledger)
        assert again is not None and differences(record.plan, again) == ((), ())
        ledger = dict(record.lag_rounds)


def test_start_ups_are_kept_with_the_kind_and_the_type_and_a_restart_does_not_forget_them() -> None:
    world = a_world(4.0)
    job_id = world.submit(300, **STATED)
    world.run(lambda: world.job(job_id).training_since_s is not None)
    world.driver = world.new_driver()
    world.run_until_s(15.0)
    assert world.store.snapshot().startup_times == (
        StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(4.0,)),
    )
    assert world.job(job_id).startup_s == 4.0
    record = world.store.snapshot().round_records[-1]
    assert record.inputs is not None
    assert record.inputs.switch_cost_s == {"mlp": 4.0}, "before any gang has ended"


def test_a_job_whose_start_exceeds_the_limit_says_so_once_and_is_not_kept_again() -> None:
    world = a_world(100.0, start_limit_s=30.0)
    ids = [world.submit(120, **STATED) for _ in range(2)]
    world.run(lambda: all(world.job(job_id).no_progress for job_id in ids), ticks=2000)
    since_s = world.clock.now_s()
    world.run_until_s(since_s + 200.0)
    for job_id in ids:
        job = world.job(job_id)
        assert "reported no step" in job.no_progress and "start_limit_s (now 30 s)" in job.no_progress
        assert [event.kind for event in world.store.events(job_id)].count("job.no_progress") == 1
        kept = [lease for lease in world.leases_of(job_id) if lease.expires_at_s > since_s + 20.0]
        rounds = Counter(lease.generation for lease in kept)
        assert len(rounds) > 2 and max(rounds.values()) < 3, "no lease lasts as long as the limit any more"
    queued = [world.job(job_id) for job_id in ids if world.job(job_id).state is JobState.QUEUED]
    assert queued and all(job.reason is Reason.NO_PROGRESS for job in queued)


def test_a_program_that_runs_on_and_on_without_a_step_is_told_so_once_until_it_reports_one() -> None:
    world = a_world(100.0, start_limit_s=30.0)
    job_id = world.submit(120, **STATED)
    world.run_until_s(29.0)
    assert world.job(job_id).no_progress == ""
    world.run_until_s(90.0)
    silent = world.job(job_id)
    assert silent.state is JobState.LEASED and silent.generation == 1, "nobody else wants its workers"
    assert "has run for 30 s and has reported no step" in silent.no_progress and "gavel init" in silent.no_progress
    world.run(lambda: world.is_done(job_id))
    assert world.job(job_id).no_progress == ""
    assert [event.kind for event in world.store.events(job_id)].count("job.no_progress") == 1


def test_a_program_that_is_never_stopped_may_run_without_a_step() -> None:
    world = a_world(100.0, start_limit_s=30.0)
    job_id = world.submit(120, preemptible=False, **STATED)
    world.run_until_s(90.0)
    assert world.job(job_id).no_progress == ""
