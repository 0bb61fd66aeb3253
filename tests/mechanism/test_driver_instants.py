"""When a driver is due again, when it plans, and what it does where it cannot: whole log entries, exact instants."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from gavel.errors import BackendUnavailable, InvariantViolated, StaleVersion, StoreUnavailable
from gavel.mechanism import driver as driver_module
from gavel.mechanism.driver import RETRY_S, SOLVER_KEPT_S
from gavel.mechanism.tick import Outcome
from gavel.ports import Changes, ExtendLease, LaunchGang
from gavel.types import DiskState, JobState, Reason
from tests.builders import a_cluster
from tests.mechanism.recorded import Recorded
from tests.mechanism.test_commands import handling
from tests.mechanism.test_driver_steps import a_resource

INF = float("inf")


# --- ticks that are skipped ---


@pytest.mark.parametrize(
    "problem", [StoreUnavailable("database is locked"), StaleVersion("version 3 is not 2"), BackendUnavailable("away")]
)
def test_a_tick_that_cannot_be_committed_is_tried_again_soon(problem: Exception) -> None:
    world = Recorded()
    world.submit(150)
    world.kept.problem = problem
    with capture_logs() as logs:
        assert world.tick(3.0) == (3.0 + RETRY_S, [], [])
    assert logs == [{"event": "tick.skipped", "error": str(problem), "log_level": "warning"}]
    assert (world.driver.skipped, world.driver.ticks, world.driver.newest_round) == (str(problem), 0, (0, 0.0))
    world.tick(3.5)
    assert (world.driver.skipped, world.driver.ticks, world.driver.newest_round) == ("", 1, (1, 0.0))


def test_the_time_that_a_round_takes_is_kept_and_the_next_one_is_decided_earlier_by_twice_that() -> None:
    world = Recorded()
    world.solver.takes_s = 2.0
    world.submit(1000)
    due_s, _, _ = world.tick(0.0)
    assert (world.driver.newest_round, due_s) == ((1, 2.0), 10.0 - 2 * 2.0)


def test_a_clock_that_was_set_back_is_written_to_the_log_once() -> None:
    world = Recorded()
    world.submit(10_000)
    world.tick(1000.0)
    world.clock.step(-500.1234567)
    with capture_logs() as logs:
        world.driver.tick()
        world.driver.tick()
    assert logs == [{"event": "clock.set_back", "by_s": 500.123, "round": 1, "log_level": "warning"}]


# --- the solver ---


def test_nothing_is_planned_before_the_solver_is_there_unless_gangs_hold_workers() -> None:
    world = Recorded()
    world.solver.is_ready = False
    job_id = world.submit(1000)
    assert world.tick(0.0)[2] == []
    world.solver.is_ready = True
    assert len(world.tick(1.0)[2]) == 2
    world.solver.is_ready = False
    _, (changes,), _ = world.tick(8.5)
    assert changes.round is not None and changes.round.plan.leases[0].job_id == job_id


def test_the_solver_of_an_idle_service_is_closed_after_a_minute_and_not_while_a_job_may_need_it() -> None:
    world = Recorded()
    job_id = world.submit(100)
    world.tick(0.0)
    world.tick(30.0)
    assert (world.job(job_id).state, world.driver.is_idle) == (JobState.COMPLETED, False)
    world.tick(30.0 + SOLVER_KEPT_S)
    assert (world.solver.closed, world.driver.is_idle) == (0, True)
    world.tick(30.1 + SOLVER_KEPT_S)
    assert world.solver.closed == 1
    held = world.submit(100)
    world.ask("job.pause", f"job/{held}")
    other = world.submit(10_000)
    world.tick(200.0)
    assert (world.solver.closed, world.driver.is_idle, world.job(other).state) == (1, False, JobState.LEASED)


def test_a_service_that_has_never_been_busy_keeps_its_solver_for_a_minute_too() -> None:
    world = Recorded()
    world.clock.advance(1000.0)
    world.driver = world.new_driver()
    for at_s, closed in ((1000.0 + SOLVER_KEPT_S, 0), (1000.1 + SOLVER_KEPT_S, 1)):
        world.tick(at_s)
        assert world.solver.closed == closed


# --- plans ---


def test_a_plan_that_breaks_an_invariant_halts_planning_and_gangs_run_to_the_end_of_their_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Recorded()
    running = world.submit(1000)
    world.tick(0.0)
    violation = InvariantViolated("one_lease_per_worker", "worker fast-0 is leased twice")

    def breaks(*_: object) -> None:
        raise violation

    monkeypatch.setattr(world.driver._decider, "decide", breaks)
    with capture_logs() as logs:
        due_s, (changes,), instructions = world.tick(7.5)
    why = "one_lease_per_worker: worker fast-0 is leased twice"
    error = {"event": "planning.halted", "invariant": "one_lease_per_worker", "detail": why, "log_level": "error"}
    assert (logs, world.driver.halted, due_s) == ([error], why, INF)
    assert (changes.round, instructions) == (
        None,
        [a_resource(running, 1, 10.0), ExtendLease(job_id=running, generation=1, expires_at_s=10.0)],
    )
    monkeypatch.undo()
    waiting = world.submit(10)
    for at_s in (8.0, 10.0, 25.0):
        assert world.tick(at_s)[0] == INF
    assert {world.job(each).state for each in (running, waiting)} == {JobState.QUEUED}


def test_start_and_end_are_predicted_for_jobs_that_are_in_a_round_for_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "MOST_PREDICTED", 2)
    world = Recorded()
    first = [world.submit(10_000) for _ in range(3)]
    predicted = [[each.job_id for each in world.tick(0.0)[1][0].predictions]]
    later = world.submit(10_000)
    for at_s in (7.0, 7.5, 10.0, 17.5):
        predicted.append([each.job_id for changes in world.tick(at_s)[1] for each in changes.predictions])
    assert predicted == [first[:2], [], [later], [], []]


def test_a_round_that_starts_within_two_ticks_is_told_to_the_cluster_at_once() -> None:
    """The next tick comes a tick later at the earliest, and what it sends takes time, and leases end as it starts."""
    for tick_s, due_s in ((1.25, 10.0), (1.3, 7.5), (2.5, 7.5), (5.0, 7.5)):
        world = Recorded(tick_s=tick_s)
        world.submit(1000)
        world.tick(0.0)
        world.tick(5.0)
        assert world.tick(7.5)[0] == due_s


# --- jobs that wait ---


def test_a_job_that_is_held_is_told_why_at_once_and_the_reason_is_written_once() -> None:
    world = Recorded()
    world.driver = world.new_driver(disk=lambda: DiskState(over_budget={"ann": "Too much."}))
    job_id = world.submit(100)
    (first,), again = world.tick(0.0)[1], world.tick(1.0)[1]
    assert ([job.id for job in first.jobs], again) == ([job_id], [])
    job = world.job(job_id)
    assert (job.state, job.reason, job.message) == (JobState.QUEUED, Reason.DISK_BUDGET_EXCEEDED, "Too much.")


def test_a_command_that_is_not_done_yet_is_looked_at_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Outcome(is_pending=True, result={"left": 1}), Outcome(result={"left": 0})]
    world = Recorded()
    world.tick(0.0)
    with handling(monkeypatch, **{"cache.place": lambda tick, command: answers.pop(0)}):
        world.ask("cache.place", "cache")
        assert (world.tick(1.0)[0], world.tick(2.0)[0]) == (1.0, INF)


def test_a_job_starts_in_the_tick_in_which_the_one_that_it_names_has_completed() -> None:
    world = Recorded()
    first = world.submit(50)
    second = world.submit(50, after=(first,))
    world.tick(0.0)
    assert (world.job(second).state, world.job(second).reason) == (JobState.QUEUED, Reason.WAITING_FOR_JOBS)
    world.tick(5.0)
    assert (world.job(first).state, world.job(second).state) == (JobState.COMPLETED, JobState.LEASED)


def test_a_job_that_names_one_that_was_purged_just_now_fails_as_nobody_knows_how_that_ended() -> None:
    world = Recorded()
    first = world.submit(50)
    world.tick(0.0)
    second = world.submit(50, after=(first,))
    ended = replace(world.job(first), state=JobState.COMPLETED, finished_at_s=1.0)
    world.store.commit(world.store.snapshot().version, Changes(jobs=(ended,)))
    world.kept.purged.add(first)
    world.tick(1.0)
    job = world.job(second)
    assert (job.state, job.reason) == (JobState.FAILED, Reason.DEPENDENCY_FAILED)
    assert job.message == f"This job was to run after job {first}, which is CANCELLED."


def test_a_service_that_shall_not_fill_gaps_lets_jobs_wait_for_the_next_round() -> None:
    for backfill, starts_s in ((True, 1.0), (False, 10.0)):
        world = Recorded(backfill=backfill)
        world.submit(10_000)
        world.tick(0.0)
        waiting = world.submit(10_000)
        for at_s in (1.0, 7.5, 10.0):
            for each in world.tick(at_s)[2]:
                if isinstance(each, LaunchGang) and each.job_id == waiting:
                    assert at_s == starts_s


def test_a_gap_is_filled_as_soon_as_the_job_that_waits_may_have_it() -> None:
    """What nobody could fill is asked again only where something has changed: here another job comes."""
    world = Recorded(cluster=a_cluster(fast=2))
    world.submit(10_000)
    world.tick(0.0)
    large = world.submit(10_000, scale_factor=2)
    world.tick(1.0)
    small = world.submit(10_000)
    world.tick(2.0)
    assert [world.job(each).state for each in (large, small)] == [JobState.QUEUED, JobState.LEASED]
