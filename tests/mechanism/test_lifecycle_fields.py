"""What each event changes of a job, and that it changes nothing else: whole jobs are compared."""

from dataclasses import replace

import pytest

from gavel.errors import InvalidTransition
from gavel.mechanism.jobs.events import Dismissed, Ended, EventKind, Launched, Reported
from gavel.mechanism.jobs.lifecycle import (
    account_time,
    accounted_by,
    by_clock_of,
    shortened_pause,
    step,
    take_reports,
    weighed,
)
from gavel.types import (
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    Job,
    JobState,
    Reason,
    Report,
    ReportKind,
    WrittenCheckpoint,
)
from gavel.types.checkpoints import WRITTEN_MAX
from tests.builders import a_job

EXIT = GangExit(outcome=GangOutcome.EXITED, exit_code=3, message="m", log_tail="the last lines")
USED: Job = replace(
    a_job(),
    steps_done=40,
    steps_reported=55,
    attempt=2,
    generation=3,
    report_sequence=9,
    trained_s=7.0,
    trained_steps=70,
    training_since_s=2.0,
    outside_s=1.5,
    accounted_until_s=4.0,
    leases_without_checkpoint=1,
    longest_without_checkpoint_s=8.0,
    preemptions=5,
    failures=6,
    losses=1,
    retry_at_s=3.0,
    checkpoint="2-40",
    reason=Reason.PREEMPTED,
    message="before",
)
LEASED = replace(USED, state=JobState.LEASED)


def an_end(kind: EventKind, **over: object) -> Ended:
    fields = {
        "at_s": 20.0,
        "generation": 3,
        "kind": kind,
        "reason": Reason.LOST,
        "message": "so it ended",
        "exit": EXIT,
    }
    return Ended(**(fields | over))  # type: ignore[arg-type]


def test_a_launch_begins_everything_of_the_gang_anew() -> None:
    event = Launched(at_s=6.0, generation=4, round_index=8, accelerator_type="fast", worker_ids=("fast-0", "fast-1"))
    job, line = step(USED, event)
    message = "The gang was launched on fast-0, fast-1 as number 4, from step 40."
    assert job == replace(
        USED,
        state=JobState.LEASED,
        generation=4,
        attempt=3,
        report_sequence=0,
        trained_s=0.0,
        trained_steps=0,
        training_since_s=None,
        outside_s=0.0,
        steps_reported=40,
        accounted_until_s=6.0,
        reason=Reason.LAUNCHED,
        message=message,
    )
    assert (line.job_id, line.at_s, line.kind, line.message, line.round_index) == (
        "j1",
        6.0,
        "gang.launched",
        message,
        8,
    )


@pytest.mark.parametrize(
    ("kind", "over", "counted"),
    [
        (EventKind.PREEMPTED, {"held_s": 9.0}, {"preemptions": 6, "leases_without_checkpoint": 2, "longest": 9.0}),
        (EventKind.PREEMPTED, {"held_s": 7.0}, {"preemptions": 6, "leases_without_checkpoint": 2}),
        (EventKind.PREEMPTED, {}, {"preemptions": 6}),
        (EventKind.LOST, {"held_s": 9.0, "retry_at_s": 30.0}, {"losses": 2, "retry_at_s": 30.0}),
        (EventKind.LOST, {"retry_at_s": 2.0}, {"losses": 2}),
        (EventKind.RETRIED, {"held_s": 9.0}, {"failures": 7}),
        (EventKind.INFEASIBLE, {"held_s": 9.0}, {}),
    ],
)
def test_a_gang_that_ends_before_its_job_counts_as_what_it_was(
    kind: EventKind, over: dict[str, object], counted: dict[str, object]
) -> None:
    """Steps that no checkpoint has are lost with it; a lease counts as one without a checkpoint if it was held."""
    counts = {"longest_without_checkpoint_s" if name == "longest" else name: each for name, each in counted.items()}
    job, line = step(LEASED, an_end(kind, **over))
    expected = replace(USED, steps_reported=40, reason=Reason.LOST, message="so it ended")
    assert job == replace(expected, **counts)
    assert (line.kind, line.round_index) == (kind, None)


def test_a_pause_is_no_preemption_and_a_lease_that_has_saved_is_not_in_vain() -> None:
    paused, _ = step(replace(LEASED, pause_requested=True), an_end(EventKind.PREEMPTED, held_s=9.0))
    assert (paused.preemptions, paused.leases_without_checkpoint) == (5, 1)
    short, _ = step(LEASED, an_end(EventKind.PREEMPTED, held_s=0.5))
    assert (short.leases_without_checkpoint, short.longest_without_checkpoint_s) == (2, 8.0)
    lost, _ = step(replace(LEASED, longest_without_checkpoint_s=0.0), an_end(EventKind.LOST, held_s=9.0))
    assert lost.longest_without_checkpoint_s == 0.0
    saved, _ = step(replace(LEASED, checkpoint="3-40"), an_end(EventKind.PREEMPTED, held_s=9.0))
    assert (saved.preemptions, saved.leases_without_checkpoint, saved.longest_without_checkpoint_s) == (6, 1, 8.0)


@pytest.mark.parametrize(
    ("kind", "state", "steps"),
    [
        (EventKind.FINISHED, JobState.COMPLETED, 100),
        (EventKind.BROKE, JobState.FAILED, 40),
        (EventKind.CANCELLED, JobState.CANCELLED, 40),
    ],
)
def test_the_end_of_a_job_is_kept_whole(kind: EventKind, state: JobState, steps: int) -> None:
    job, _ = step(LEASED, an_end(kind))
    assert job == replace(
        USED,
        state=state,
        steps_done=steps,
        steps_reported=steps,
        finished_at_s=20.0,
        exit_code=3,
        log_tail="the last lines",
        reason=Reason.LOST,
        message="so it ended",
    )


def test_a_program_that_never_said_how_long_it_is_did_what_it_reported() -> None:
    endless = replace(LEASED, spec=replace(LEASED.spec, total_steps=None))
    job, _ = step(endless, an_end(EventKind.FINISHED))
    assert (job.steps_done, job.steps_reported) == (55, 55)


def test_a_job_without_a_gang_ends_with_its_reason() -> None:
    gone = Dismissed(at_s=9.0, kind=EventKind.CANCELLED, reason=Reason.CANCELLED, message="it is gone")
    job, line = step(USED, gone)
    assert job == replace(
        USED, state=JobState.CANCELLED, reason=Reason.CANCELLED, message="it is gone", finished_at_s=9.0
    )
    assert (line.at_s, line.kind, line.message, line.round_index) == (9.0, "job.cancelled", "it is gone", None)
    with pytest.raises(InvalidTransition, match="Cancelled: it is gone"):
        step(job, gone)


def a_report(sequence: int, kind: ReportKind, at_step: int, **over: object) -> Report:
    return Report(**({"sequence": sequence, "kind": kind, "step": at_step} | over))  # type: ignore[arg-type]


def taken(job: Job, *reports: Report, started_at_s: float | None = 10.0) -> Job:
    return take_reports(job, Reported(at_s=15.0, generation=3, reports=reports, started_at_s=started_at_s))


def test_a_checkpoint_forgives_what_was_held_against_the_job() -> None:
    fresh = replace(LEASED, report_sequence=0, no_progress="it never saves")
    durations = {
        "startup_s": 2.0,
        "restore_s": 0.5,
        "checkpoint_s": 0.25,
        "checkpoint_bytes": 7,
        "checkpoint_every_s": 9.0,
    }
    why = {"checkpoint_cost_s": 0.125, "time_to_loss_s": 3600.0}
    report = a_report(1, ReportKind.CHECKPOINT, 60, checkpoint="3-60", seconds=3.0, steps=20, **durations, **why)
    job = taken(fresh, report)
    assert job == replace(
        fresh,
        report_sequence=1,
        steps_done=60,
        steps_reported=60,
        checkpoint="3-60",
        trained_s=10.0,
        trained_steps=90,
        training_since_s=12.5,
        losses=0,
        leases_without_checkpoint=0,
        longest_without_checkpoint_s=0.0,
        no_progress="",
        checkpoints_written=(
            WrittenCheckpoint(
                name="3-60",
                step=60,
                at_s=15.0,
                size_bytes=7,
                written_s=0.25,
                cost_s=0.125,
                every_s=9.0,
                time_to_loss_s=3600.0,
            ),
        ),
        **durations,
    )


def test_the_newest_checkpoints_that_were_measured_are_remembered() -> None:
    reports = [
        a_report(10 + each, ReportKind.CHECKPOINT, 41 + each, checkpoint=f"3-{41 + each}", checkpoint_s=0.5 * each)
        for each in range(WRITTEN_MAX + 2)
    ]
    job = taken(LEASED, *reports)
    assert [each.step for each in job.checkpoints_written] == [43 + each for each in range(WRITTEN_MAX)]
    assert taken(job, a_report(40, ReportKind.CHECKPOINT, 60, checkpoint="3-60")).checkpoints_written == (
        job.checkpoints_written
    )
    stale = a_report(41, ReportKind.CHECKPOINT, 40, checkpoint="3-40", checkpoint_s=1.0)
    assert taken(job, stale).checkpoints_written == job.checkpoints_written


def test_a_checkpoint_at_the_step_that_is_saved_already_forgives_nothing() -> None:
    job = taken(LEASED, a_report(10, ReportKind.CHECKPOINT, 40, checkpoint="3-40"))
    assert job == replace(LEASED, report_sequence=10, checkpoint="3-40")
    job = taken(LEASED, a_report(10, ReportKind.CHECKPOINT, 41))
    assert (job.steps_done, job.checkpoint, job.losses) == (41, "2-40", 0)
    assert taken(LEASED, a_report(10, ReportKind.CHECKPOINT, 39, checkpoint="3-39")).checkpoint == "2-40"


def test_phases_and_work_are_added_to_those_of_the_job() -> None:
    job = taken(LEASED, a_report(10, ReportKind.PROGRESS, 41, phases_s={"load": 0.5}))
    assert (job.report_sequence, job.phases_s, job.outside_s, job.work.units) == (10, {"load": 0.5}, 2.0, 0.0)
    job = taken(LEASED, a_report(10, ReportKind.PROGRESS, 41, steps=1, seconds=2.0, work=0.5))
    assert (job.report_sequence, job.phases_s, job.outside_s) == (10, {}, 1.5)
    assert (job.work.units, job.work.steps, job.work.seconds) == (0.5, 1, 2.0)


def test_training_began_when_it_is_said_or_else_seen() -> None:
    fresh = replace(LEASED, report_sequence=0, training_since_s=None)
    first = a_report(1, ReportKind.PROGRESS, 41, startup_s=2.0)
    assert taken(fresh, first).training_since_s == 12.0
    assert taken(fresh, first, started_at_s=None).training_since_s == 15.0
    assert taken(fresh, a_report(1, ReportKind.PROGRESS, 41)).training_since_s == 15.0
    assert taken(LEASED, a_report(10, ReportKind.PROGRESS, 41, startup_s=2.0)).training_since_s == 2.0


def test_reports_are_taken_in_their_order_and_each_once() -> None:
    reports = [a_report(9, ReportKind.CHECKPOINT, 90, checkpoint="old"), a_report(10, ReportKind.PROGRESS, 100)]
    job = taken(LEASED, *reports)
    assert job == replace(LEASED, report_sequence=10, steps_reported=100)
    assert taken(replace(LEASED, state=JobState.COMPLETED), *reports).report_sequence == 9
    assert taken(LEASED, a_report(10, ReportKind.PROGRESS, 101), a_report(11, ReportKind.PROGRESS, 99)) == replace(
        LEASED, report_sequence=11, steps_reported=99
    )


def test_how_long_a_program_is_may_come_from_the_program_and_an_early_end_too() -> None:
    endless = replace(LEASED, spec=replace(LEASED.spec, total_steps=None))
    assert taken(endless, a_report(10, ReportKind.PROGRESS, 60, total_steps=80)).program_steps == 80
    assert taken(endless, a_report(10, ReportKind.PROGRESS, 81, total_steps=80)) is endless
    assert taken(LEASED, a_report(10, ReportKind.PROGRESS, 60, total_steps=80)).program_steps is None
    assert taken(LEASED, a_report(10, ReportKind.FINISHED, 90)).last_step == 90
    assert taken(LEASED, a_report(10, ReportKind.FINISHED, 100)).last_step is None
    assert taken(LEASED, a_report(10, ReportKind.PROGRESS, 90)).last_step is None
    never = replace(LEASED, steps_done=0, steps_reported=0)
    assert taken(never, a_report(10, ReportKind.FINISHED, 0)).last_step == 1


def a_gang(*, since_s: float | None = 10.0, until_s: float | None = None, generation: int = 3) -> GangSeen:
    state = GangState.RUNNING if until_s is None else GangState.ENDED
    return GangSeen(
        job_id="j1",
        generation=generation,
        state=state,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=since_s,
        ended_at_s=until_s,
        exit=None if until_s is None else EXIT,
    )


def test_time_with_a_partner_is_a_part_of_the_time() -> None:
    """[10, 20) is held; of it the first partner has [12, 15), the second [18, 20), the others nothing."""
    partners = [a_gang(since_s=12.0, until_s=15.0), a_gang(since_s=18.0), a_gang(since_s=None), a_gang(since_s=20.0)]
    before = replace(LEASED, received_s={"fast": 1.0, "slow": 2.0}, shared_s={"fast": 0.5}, started_at_s=None)
    job = account_time(before, a_gang(), 20.0, [*partners, a_gang(since_s=1.0, until_s=10.0)])
    assert job == replace(
        before,
        received_s={"fast": 11.0, "slow": 2.0},
        shared_s={"fast": 5.5},
        accounted_until_s=20.0,
        started_at_s=10.0,
        gang_started_at_s=10.0,
    )
    again = account_time(replace(job, started_at_s=3.0), a_gang(until_s=22.0), 30.0)
    assert (again.received_s["fast"], again.accounted_until_s, again.started_at_s) == (13.0, 22.0, 3.0)
    assert again.shared_s == {"fast": 5.5}


@pytest.mark.parametrize("by_s", [-3600.0, -5.0, 5.0, 90.0])
def test_instants_follow_a_clock_that_was_set(by_s: float) -> None:
    fields = {"accounted_until_s": 15.0, "started_at_s": 2.0, "training_since_s": 12.0, "gang_started_at_s": 10.0}
    job, gang = replace(LEASED, **fields), a_gang(since_s=10.0 + by_s)
    assert by_clock_of(gang, job) == replace(job, **{name: at_s + by_s for name, at_s in fields.items()})
    waits = replace(job, started_at_s=None, training_since_s=None)
    assert (by_clock_of(gang, waits).started_at_s, by_clock_of(gang, waits).training_since_s) == (None, None)


def test_instants_stay_where_no_clock_was_set() -> None:
    job = replace(LEASED, gang_started_at_s=10.0)
    for gang in (a_gang(since_s=10.0), a_gang(since_s=10.9), a_gang(since_s=9.1), a_gang(since_s=None)):
        assert by_clock_of(gang, job) is job
    assert by_clock_of(a_gang(since_s=90.0), LEASED) is LEASED
    assert by_clock_of(a_gang(since_s=90.0, generation=2), job) is job


def test_time_after_the_end_of_a_gang_that_nobody_saw_is_taken_back() -> None:
    """It ran on [10, 14), its partner until 12; up to 30 it was taken to run, beside the partner."""
    since = {"received_s": {"fast": 25.0}, "shared_s": {"fast": 21.0}, "accounted_until_s": 30.0}
    before = replace(LEASED, **since, gang_started_at_s=10.0)
    after = account_time(before, a_gang(until_s=14.0), 31.0, [a_gang(since_s=10.0, until_s=30.0)])
    assert (after.received_s, after.shared_s, after.accounted_until_s) == ({"fast": 9.0}, {"fast": 5.0}, 14.0)
    assert account_time(after, a_gang(until_s=14.0), 32.0) is after
    assert account_time(before, a_gang(), 20.0) is before
    assert account_time(replace(before, received_s={"fast": 1.0}), a_gang(until_s=14.0), 31.0).received_s["fast"] == 0


def test_a_gang_of_which_nothing_is_accounted_for_counts_from_its_start_whatever_clock_has_launched_it() -> None:
    job = replace(LEASED, received_s={"fast": 5.0}, accounted_until_s=30.0)
    assert account_time(job, a_gang(until_s=14.0), 31.0).received_s == {"fast": 9.0}
    assert account_time(job, a_gang(), 12.0).received_s == {"fast": 7.0}
    forged = a_gang(since_s=-1e6)
    assert account_time(replace(job, accounted_until_s=100.0), forged, 110.0).received_s == {"fast": 75.0}


def test_a_gang_that_a_clock_far_behind_first_sees_counts_at_most_as_long_as_its_lease() -> None:
    """It ran on [-83, -63) by this clock, and was launched at 6 by another; a job may forge its start."""
    job = replace(LEASED, received_s={}, accounted_until_s=6.0)
    assert account_time(job, a_gang(since_s=-83.0, until_s=-63.0), 2.0).received_s == {}
    assert account_time(job, a_gang(since_s=-83.0, until_s=-63.0), 2.0, lease_s=30.0).received_s == {"fast": 20.0}
    assert account_time(job, a_gang(since_s=-1e6, until_s=-63.0), 2.0, lease_s=30.0).received_s == {"fast": 30.0}


def test_no_time_after_now_is_accounted_for() -> None:
    job = replace(LEASED, accounted_until_s=10.0)
    assert accounted_by(job, 9.0) == replace(job, accounted_until_s=9.0)
    assert accounted_by(job, 10.0) is job


def test_time_without_a_partner_is_shared_with_nobody() -> None:
    before = replace(LEASED, received_s={}, shared_s={})
    assert account_time(before, a_gang(), 20.0).shared_s == {}
    assert account_time(before, a_gang(), 20.0, [a_gang(since_s=19.5)]).shared_s == {"fast": 0.5}


def test_no_time_is_counted_of_a_gang_that_is_not_the_jobs_or_has_not_started() -> None:
    assert account_time(LEASED, a_gang(generation=2), 20.0) is LEASED
    assert account_time(LEASED, a_gang(since_s=None), 20.0) is LEASED
    assert account_time(LEASED, a_gang(), 10.0) is LEASED


@pytest.mark.parametrize(
    ("losses", "retry_at_s", "again"),
    [(0, 20.0, "at once"), (1, 24.0, "after 4 s"), (2, 28.0, "after 8 s"), (14, 3620.0, "after 3600 s")],
)
def test_a_lost_gang_costs_a_pause_that_doubles(losses: int, retry_at_s: float, again: str) -> None:
    end = weighed(replace(LEASED, losses=losses), an_end(EventKind.LOST), retries=15, backoff_s=4.0)
    message = f"so it ended The job starts again {again}."
    assert end == an_end(EventKind.LOST, retry_at_s=retry_at_s, message=message)
    paused = replace(USED, losses=losses + 1, retry_at_s=1e9)
    assert shortened_pause(paused, 20.0, backoff_s=4.0) == replace(paused, retry_at_s=retry_at_s)


def test_a_pause_that_is_short_enough_stays_as_it_is() -> None:
    for retry_at_s in (3.0, 24.0):
        paused = replace(USED, losses=2, retry_at_s=retry_at_s)
        assert shortened_pause(paused, 20.0, backoff_s=4.0) is paused


def test_only_losses_are_weighed_and_too_many_break_the_job() -> None:
    other = an_end(EventKind.RETRIED)
    assert weighed(replace(LEASED, losses=99), other, retries=2, backoff_s=4.0) is other
    end = weighed(replace(LEASED, losses=2), an_end(EventKind.LOST), retries=2, backoff_s=4.0)
    message = "The job lost 3 gangs in a row without a durable step. so it ended"
    assert end == an_end(EventKind.BROKE, reason=Reason.LOST_TOO_OFTEN, message=message)
