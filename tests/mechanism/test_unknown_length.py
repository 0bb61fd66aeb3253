"""A job whose user did not say how long it is: what its program says, and what policies take it for."""

import numpy as np
import pytest

from gavel.mechanism.jobs.events import EventKind, Reported
from gavel.mechanism.jobs.lifecycle import ended, step, take_reports
from gavel.mechanism.planning.lengths import ASSUMED_S, UNSAID_ERROR, length_error, steps_left
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, Job, JobState, Report, ReportKind
from tests.builders import a_job


def a_running_job(**over: object) -> Job:
    return a_job(spec={"total_steps": None}, state=JobState.LEASED, generation=1, attempt=1, **over)


def reported(job: Job, *reports: Report) -> Job:
    return take_reports(job, Reported(at_s=20.0, generation=1, reports=reports))


def a_report(sequence: int, at_step: int, total_steps: int | None = None) -> Report:
    return Report(sequence=sequence, kind=ReportKind.PROGRESS, step=at_step, total_steps=total_steps)


def at_its_end(job: Job) -> tuple[Job, EventKind]:
    exit_ = GangExit(outcome=GangOutcome.EXITED)
    gang = GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.ENDED,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=10.0,
        exit=exit_,
    )
    end = ended(job, gang, 30.0)
    assert end is not None
    return step(job, end)[0], end.kind


def test_the_length_is_what_the_program_said_first() -> None:
    job = reported(a_running_job(), a_report(1, 0, 50), a_report(2, 5, 60))
    assert job.total_steps == 50
    assert job.spec.total_steps is None, "what the user asked for stays as it is"


def test_what_was_submitted_goes_before_what_the_program_says() -> None:
    job = reported(a_job(state=JobState.LEASED, generation=1), a_report(1, 0, 50))
    assert job.total_steps == 100


def test_a_step_beyond_the_length_that_the_program_said_is_no_report() -> None:
    job = reported(a_running_job(), a_report(1, 0, 50), a_report(2, 51))
    assert (job.steps_reported, job.report_sequence) == (0, 1)


def test_a_program_that_says_its_length_must_do_all_its_steps() -> None:
    _, kind = at_its_end(reported(a_running_job(), a_report(1, 0, 50)))
    assert kind is EventKind.BROKE


@pytest.mark.parametrize("reports", [(), (a_report(1, 7),)])
def test_a_program_that_never_says_its_length_is_complete_when_it_ends(reports: tuple[Report, ...]) -> None:
    job, kind = at_its_end(reported(a_running_job(), *reports))
    assert (kind, job.state) == (EventKind.FINISHED, JobState.COMPLETED)
    assert job.steps_done == (7 if reports else 0)
    assert "did not say how many steps" in job.message


@pytest.mark.parametrize("submitted", [None, 50])
def test_a_program_that_ends_its_training_early_is_complete(submitted: int | None) -> None:
    job = a_job(spec={"total_steps": submitted}, state=JobState.LEASED, generation=1, attempt=1)
    last = Report(sequence=2, kind=ReportKind.FINISHED, step=20)
    job, kind = at_its_end(reported(job, a_report(1, 0, None if submitted else 50), last))
    assert (kind, job.state) == (EventKind.FINISHED, JobState.COMPLETED)
    assert (job.steps_done, job.total_steps, job.stated_steps) == (20, 20, 50)
    assert job.message == "The program ended its training after step 20, before the 50 steps it had."


def left(total: list[float], kinds: list[str], rates: list[float], done: float = 0.0) -> list[float]:
    return steps_left(
        np.array(total), np.full(len(total), done), kinds=kinds, steps_per_s=np.array(rates)[:, None]
    ).tolist()


def test_a_job_of_unknown_length_is_taken_for_the_median_of_its_kind() -> None:
    nan = np.nan
    assert left([100, 300, nan, 900], ["a", "a", "a", "b"], [1, 1, 1, 1], done=10.0) == [90, 290, 200, 890]


def test_without_a_known_length_of_its_kind_it_is_taken_for_an_hour() -> None:
    assert left([np.nan, 50], ["a", "b"], [2.0, 1.0], done=10.0) == [2 * ASSUMED_S, 40]


def test_how_sure_a_length_is() -> None:
    """As its rate is, and much less where nobody has said how many steps there are; a small error is none."""
    total_steps, rate_error = np.array([100.0, 100.0, np.nan, np.nan]), np.array([0.02, 0.3, 0.02, 1.0])
    assert length_error(total_steps, rate_error).tolist() == [0.0, 0.3, UNSAID_ERROR, 1.4]
