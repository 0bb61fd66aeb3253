import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InvalidTransition
from gavel.mechanism.jobs.events import Dismissed, Ended, EventKind, Launched, Reported
from gavel.mechanism.jobs.lifecycle import METRIC_NAMES_MAX, TABLE, account_time, ended, step, take_reports
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, Job, JobState, Report, ReportKind
from gavel.types.copying import changed
from tests.builders import a_job


def launched(generation: int = 1) -> Launched:
    return Launched(at_s=5.0, generation=generation, round_index=3, accelerator_type="fast", worker_ids=("fast-0",))


def a_gang(exit_: GangExit | None = None, **over: object) -> GangSeen:
    fields = {
        "job_id": "j1",
        "generation": 1,
        "state": GangState.ENDED if exit_ else GangState.RUNNING,
        "accelerator_type": "fast",
        "worker_ids": ("fast-0",),
        "started_at_s": 10.0,
        "exit": exit_,
    }
    return GangSeen(**(fields | over))


def a_leased_job(**over: object) -> Job:
    return a_job(**({"state": JobState.LEASED, "generation": 1, "attempt": 1, "accounted_until_s": 5.0} | over))


def the_end(outcome: GangOutcome, code: int = 0, **job: object) -> Ended:
    event = ended(a_leased_job(**job), a_gang(GangExit(outcome=outcome, exit_code=code, message="m")), 20.0)
    assert event is not None
    return event


def test_a_session_that_is_over_has_done_what_it_reported_and_no_more() -> None:
    over = "The session has had the 60 s that it was granted."
    leased = a_leased_job(over=over, spec={"total_steps": 100}, steps_reported=7)
    end = ended(leased, a_gang(GangExit(outcome=GangOutcome.PREEMPTED, exit_code=75, message="stopped")), 20.0)
    assert end is not None
    after, _ = step(leased, end)
    assert (after.state, after.steps_done, after.message) == (JobState.COMPLETED, 7, leased.over)


def test_a_launch_raises_the_token_and_starts_the_reports_anew() -> None:
    job, line = step(a_job(report_sequence=9, steps_done=40), launched(generation=2))
    assert (job.state, job.generation, job.attempt, job.report_sequence) == (JobState.LEASED, 2, 1, 0)
    assert line.kind == "gang.launched" and line.round_index == 3


def test_every_pair_outside_the_table_tells_the_story() -> None:
    missing = [(s, k) for s in JobState for k in EventKind if (s, k) not in TABLE]
    assert len(missing) == len(JobState) * len(EventKind) - 11
    for state, kind in missing:
        event = Dismissed(at_s=0.0, kind=kind, reason="r", message="m")
        with pytest.raises(InvalidTransition, match=f"job j1 is {state} and cannot take {kind}"):
            step(a_job(state=state), event)


def test_a_terminal_state_admits_nothing() -> None:
    assert not [pair for pair in TABLE if pair[0].is_terminal]


@pytest.mark.parametrize(
    ("outcome", "code", "job", "kind", "reason"),
    [
        (GangOutcome.EXITED, 0, {"steps_done": 100, "report_sequence": 4}, EventKind.FINISHED, "Completed"),
        (GangOutcome.EXITED, 0, {"report_sequence": 0}, EventKind.FINISHED, "Completed"),
        (GangOutcome.EXITED, 0, {"steps_done": 7, "report_sequence": 2}, EventKind.BROKE, "StepsMissing"),
        (GangOutcome.EXITED, 1, {}, EventKind.BROKE, "ProgramFailed"),
        (GangOutcome.EXITED, -9, {}, EventKind.BROKE, "ProgramFailed"),
        (GangOutcome.NOT_STARTED, 0, {}, EventKind.BROKE, "ProgramNotStarted"),
        (GangOutcome.PREEMPTED, 0, {}, EventKind.PREEMPTED, "Preempted"),
        (GangOutcome.PREEMPTED, 0, {"cancel_requested": True}, EventKind.CANCELLED, "Cancelled"),
        (GangOutcome.LOST, 0, {}, EventKind.LOST, "Lost"),
        (GangOutcome.EXITED, 1, {"cancel_requested": True}, EventKind.CANCELLED, "Cancelled"),
    ],
)
def test_what_a_gangs_end_means(
    outcome: GangOutcome, code: int, job: dict[str, object], kind: EventKind, reason: str
) -> None:
    event = the_end(outcome, code, **job)
    assert (event.kind, event.reason) == (kind, reason)


def test_the_end_of_an_older_gang_means_nothing() -> None:
    assert ended(a_leased_job(generation=2), a_gang(GangExit(outcome=GangOutcome.EXITED, exit_code=1)), 20.0) is None


def test_completion_sets_the_exact_number_of_steps() -> None:
    job, _ = step(a_leased_job(), the_end(GangOutcome.EXITED, 0, report_sequence=0))
    assert (job.state, job.steps_done, job.steps_reported) == (JobState.COMPLETED, 100, 100)


def test_a_signal_is_named_in_the_message() -> None:
    assert "signal 9" in the_end(GangOutcome.EXITED, -9).message


def test_the_reason_why_a_program_did_not_start_is_a_whole_sentence() -> None:
    exit_ = GangExit(outcome=GangOutcome.NOT_STARTED, exit_code=127, message="its setup failed with exit code 1")
    event = ended(a_leased_job(), a_gang(exit_), 20.0)
    assert event is not None
    assert event.message == "Its setup failed with exit code 1."


def test_the_message_of_a_failure_is_whole_sentences() -> None:
    exit_ = GangExit(outcome=GangOutcome.EXITED, exit_code=3, message="rank 0 ended with exit code 3")
    event = ended(a_leased_job(), a_gang(exit_), 20.0)
    assert event is not None
    assert event.message.startswith("The program ended with exit code 3 on ")
    assert event.message.endswith(". Rank 0 ended with exit code 3.")


def test_only_a_checkpoint_moves_the_steps_that_are_done() -> None:
    reports = (
        Report(sequence=1, kind=ReportKind.PROGRESS, step=30, metrics={"loss": 0.5}),
        Report(sequence=2, kind=ReportKind.CHECKPOINT, step=40, checkpoint="1-40"),
        Report(sequence=3, kind=ReportKind.PROGRESS, step=55),
    )
    job = take_reports(a_leased_job(), Reported(at_s=0.0, generation=1, reports=reports))
    assert (job.steps_done, job.steps_reported, job.checkpoint) == (40, 55, "1-40")
    assert job.metrics == {"loss": 0.5}
    assert take_reports(job, Reported(at_s=0.0, generation=1, reports=reports)) == job


def test_a_job_whose_checkpoint_cannot_be_loaded_is_back_at_the_one_before() -> None:
    """What is done again counts, though it does not reach the step of the lost one; only a first report does that."""
    job = changed(a_leased_job(generation=3), steps_done=40, steps_reported=40, checkpoint="2-40")
    back = Report(sequence=1, kind=ReportKind.PROGRESS, step=25, restored="1-25", note="2-40 could not be loaded")
    saved = Report(sequence=2, kind=ReportKind.CHECKPOINT, step=31, checkpoint="3-31")
    after = take_reports(job, Reported(at_s=0.0, generation=3, reports=(back,)))
    assert (after.steps_done, after.steps_reported, after.checkpoint) == (25, 25, "1-25")
    after = take_reports(after, Reported(at_s=1.0, generation=3, reports=(saved,)))
    assert (after.steps_done, after.checkpoint) == (31, "3-31")
    late = Report(sequence=3, kind=ReportKind.PROGRESS, step=31, restored="1-25")
    assert take_reports(after, Reported(at_s=2.0, generation=3, reports=(late,))).checkpoint == "3-31"


def test_reports_of_another_token_or_beyond_the_total_change_nothing() -> None:
    late = (Report(sequence=5, kind=ReportKind.CHECKPOINT, step=90, checkpoint="1-90"),)
    job = a_leased_job(generation=2)
    assert take_reports(job, Reported(at_s=0.0, generation=1, reports=late)) is job
    beyond = (Report(sequence=1, kind=ReportKind.FINISHED, step=101),)
    assert take_reports(job, Reported(at_s=0.0, generation=2, reports=beyond)) is job


@given(st.lists(st.tuples(st.integers(1, 20), st.sampled_from(list(ReportKind)), st.integers(0, 120)), max_size=20))
def test_progress_never_goes_back_whatever_is_reported(rows: list[tuple[int, ReportKind, int]]) -> None:
    job = a_leased_job()
    for sequence, kind, at in rows:
        report = Report(sequence=sequence, kind=kind, step=at, checkpoint=f"1-{at}")
        after = take_reports(job, Reported(at_s=0.0, generation=1, reports=(report,)))
        assert job.steps_done <= after.steps_done <= after.spec.total_steps
        assert job.steps_reported <= after.steps_reported
        job = after


def test_time_is_accounted_once_from_the_start_to_the_end() -> None:
    job = account_time(a_leased_job(), a_gang(), 14.0)
    assert job.received_s == {"fast": 4.0} and job.started_at_s == 10.0
    job = account_time(job, a_gang(), 14.0)
    job = account_time(job, a_gang(GangExit(outcome=GangOutcome.PREEMPTED), ended_at_s=16.0), 30.0)
    assert job.received_s == {"fast": 6.0}


def test_a_job_shows_a_bounded_number_of_metrics_the_newest_names_first() -> None:
    job = a_leased_job(metrics={"first": 1.0, "again": 2.0})
    for sequence in range(1, 101):
        metrics = {f"name-{sequence}": 0.5, "again": float(sequence)}
        report = Report(sequence=sequence, kind=ReportKind.PROGRESS, step=sequence, metrics=metrics)
        job = take_reports(job, Reported(at_s=9.0, generation=1, reports=(report,), started_at_s=5.0))
    assert len(job.metrics) == METRIC_NAMES_MAX and "first" not in job.metrics
    assert job.metrics["again"] == 100.0 and {"name-100", "name-38"} <= job.metrics.keys()


@pytest.mark.parametrize(
    ("left", "checkpoint", "steps"),
    [("1-4", "1-4", 4), ("", None, 0), (None, "2-30", 30)],
    ids=["older", "none", "kept"],
)
def test_a_job_whose_checkpoint_is_gone_goes_on_from_what_is_left(
    left: str | None, checkpoint: str | None, steps: int
) -> None:
    job = a_leased_job(checkpoint="2-30", steps_done=30, steps_reported=40)
    gang = a_gang(GangExit(outcome=GangOutcome.LOST, message="checkpoint 2-30 is gone"), checkpoint_left=left)
    event = ended(job, gang, 20.0)
    assert event is not None
    after, line = step(job, event)
    assert (after.state, after.checkpoint, after.steps_done) == (JobState.QUEUED, checkpoint, steps)
    assert after.steps_so_far == steps
    assert "checkpoint 2-30 is gone" in line.message
