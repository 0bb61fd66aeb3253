"""When a job is told that it is not expected to get on, and what it is told: whole sentences are compared."""

from typing import Any

import pytest

from gavel.mechanism.jobs.no_progress import no_progress, silent
from gavel.types import Job, StartupTimes
from tests.builders import a_job

LIMIT_S = 600.0
IN_LEASES = "2 leases, the longest of 600 s"
HELP = (
    "If it starts slowly, an operator can raise start_limit_s (now 600 s) or round_duration_s;"
    " if it does not use `job.steps` yet, let it."
)


def a_stalled_job(**over: Any) -> Job:
    return a_job(**{"leases_without_checkpoint": 2, "longest_without_checkpoint_s": LIMIT_S} | over)


def sentence(job: Job, *times: StartupTimes, spent_s: float = 0.0) -> str:
    return no_progress(job, "fast", times, start_limit_s=LIMIT_S, spent_s=spent_s)


def test_a_program_that_reports_nothing_is_told_how_it_could_be_given_more_time() -> None:
    assert sentence(a_stalled_job()) == f"The program reported no step in {IN_LEASES}. {HELP}"


def test_a_slow_start_is_named_with_what_its_kind_takes_there() -> None:
    """The times of another type or kind do not count."""
    times = (
        StartupTimes(kind="mlp", accelerator_type="slow", startup_s=(5.0,)),
        StartupTimes(kind="cnn", accelerator_type="fast", startup_s=(6.0,)),
        StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(700.0, 900.0, 800.0), restore_s=(50.0,)),
    )
    usual = "Its job kind takes about 850 s to start on fast."
    assert sentence(a_stalled_job(), *times) == f"The program reported no step in {IN_LEASES}. {usual} {HELP}"
    short = StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(0.6,))
    assert "takes about 1 s to start on fast" in sentence(a_stalled_job(), short)


def test_a_job_that_trains_and_saves_nothing_is_told_to_save() -> None:
    assert sentence(a_stalled_job(training_since_s=5.0, steps_done=7)) == (
        f"The job trained in {IN_LEASES}, and saved no checkpoint, so it begins again at step 7 each time."
        " Pass `checkpoint` and `restore` to `job.steps`; a checkpoint has to be written within one lease."
    )


def test_a_dump_command_that_saves_nothing_is_named_whether_the_job_trains_or_not() -> None:
    for since_s in (None, 5.0):
        job = a_stalled_job(spec={"dump": ("save",)}, training_since_s=since_s)
        assert sentence(job) == (
            f"The job ran in {IN_LEASES}, and its dump command has saved nothing; the job's log says why."
        )


def test_a_user_whose_programs_held_workers_for_the_limit_is_told_so_before_a_lease_lasted_as_long() -> None:
    job = a_stalled_job(longest_without_checkpoint_s=40.0)
    assert sentence(job, spent_s=LIMIT_S) == (
        "The program reported no step in 2 leases, the longest of 40 s."
        f" Programs of ann have held workers without a report for longer than start_limit_s. {HELP}"
    )
    assert sentence(a_stalled_job(), spent_s=LIMIT_S) == sentence(a_stalled_job())


def test_a_start_that_is_slow_and_programs_that_held_workers_are_named_together() -> None:
    slow = StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(90.0,))
    assert sentence(a_stalled_job(longest_without_checkpoint_s=40.0), slow, spent_s=LIMIT_S) == (
        "The program reported no step in 2 leases, the longest of 40 s. Its job kind takes about 90 s to start on fast."
        f" Programs of ann have held workers without a report for longer than start_limit_s. {HELP}"
    )


@pytest.mark.parametrize(
    ("over", "spent_s"),
    [
        ({"leases_without_checkpoint": 1}, LIMIT_S),
        ({"longest_without_checkpoint_s": 599.0}, 599.0),
        ({"longest_without_checkpoint_s": 599.0, "training_since_s": 5.0}, LIMIT_S),
    ],
    ids=["one lease", "a longer one may help", "it trains, so the time of silent programs is not its own"],
)
def test_a_job_with_hope_is_told_nothing(over: dict[str, Any], spent_s: float) -> None:
    assert sentence(a_stalled_job(**over), spent_s=spent_s) == ""


def test_a_program_that_runs_without_a_step_is_told_what_it_would_lose() -> None:
    assert silent(a_job(), LIMIT_S, start_limit_s=LIMIT_S) == (
        "The program has run for 600 s and has reported no step, so it has saved nothing: as soon as another job gets"
        " its workers it begins again. If it does not use `job.steps` yet, let it (`gavel init` says how);"
        " if it cannot be stopped and resumed, submit it with --no-preemptible."
    )


@pytest.mark.parametrize(
    ("job", "ran_s"),
    [(a_job(), 599.0), (a_job(report_sequence=1), LIMIT_S), (a_job(spec={"preemptible": False}), LIMIT_S)],
    ids=["it may still start", "it has reported", "it is never stopped"],
)
def test_a_program_that_loses_nothing_is_told_nothing(job: Job, ran_s: float) -> None:
    assert silent(job, ran_s, start_limit_s=LIMIT_S) == ""
