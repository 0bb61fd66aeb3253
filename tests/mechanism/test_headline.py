"""What people read first about a job, word for word."""

from typing import Any

import pytest

from gavel.mechanism.explaining.durations import in_about, lasting
from gavel.mechanism.explaining.explanation import Why
from gavel.mechanism.explaining.headline import headline
from gavel.types import Expected, Job, JobState, Reason
from tests.builders import a_job

NOW_S = 1000.0
FULL = "All 4 workers are busy."
NEXT = Why(code=Reason.BEHIND_FAIR_SHARE, message=f"{FULL} This job is next in gold.", position=1, shortage=FULL)
FOURTH = Why(code=Reason.BEHIND_FAIR_SHARE, message="", position=4, shortage=FULL)
RUNS = Why(code=Reason.RUNNING, message="The gang runs on 1 worker of avx2 (avx2-0).")
UNSEEN = Why(code=Reason.PENDING_EVALUATION, message="The first round takes the job into account.", position=1)
PAUSED = Why(code=Reason.PAUSED, message="The job is paused at step 40 of 100.")
SOON = Expected(at_s=NOW_S + 7, low_s=NOW_S, high_s=NOW_S + 14)
LATER = Expected(at_s=NOW_S + 600, low_s=NOW_S + 300, high_s=NOW_S + 1200)
ENDED = {"submitted_at_s": NOW_S - 200, "finished_at_s": NOW_S - 5}


def in_state(state: str, **over: Any) -> Job:
    return a_job(state=JobState(state), **over)


@pytest.mark.parametrize(
    ("job", "why", "start", "finish", "sentence"),
    [
        (in_state("QUEUED"), NEXT, SOON, LATER, f"{FULL} You are next in gold; it starts in about 7 s (0 to 14 s)."),
        (in_state("QUEUED"), FOURTH, None, None, f"{FULL} 3 jobs of gold come before yours."),
        (
            in_state("QUEUED"),
            UNSEEN,
            SOON,
            None,
            "The first round takes the job into account; it starts in about 7 s (0 to 14 s).",
        ),
        (
            in_state("QUEUED", attempt=1, steps_done=40),
            NEXT,
            SOON,
            None,
            f"It has stopped for now and goes on from step 40 of 100. {FULL} You are next in gold;"
            " it starts in about 7 s (0 to 14 s).",
        ),
        (in_state("QUEUED", attempt=1, pause_requested=True), PAUSED, None, None, PAUSED.message),
        (
            in_state("LEASED", steps_reported=34),
            RUNS,
            None,
            LATER,
            "The gang runs on 1 worker of avx2 (avx2-0); the job is 34% done and ends in about 10 min (5 to 20 min).",
        ),
        (in_state("LEASED"), RUNS, None, None, RUNS.message),
        (
            in_state("LEASED", attempt=2, leases_without_checkpoint=1),
            RUNS,
            None,
            None,
            f"{RUNS.message} Its program began again at its first line, because it had reported no step; `gavel init`"
            " says how it goes on from where it was.",
        ),
        (
            in_state("LEASED", attempt=2, leases_without_checkpoint=1, training_since_s=NOW_S),
            RUNS,
            None,
            None,
            RUNS.message,
        ),
        (in_state("LEASED", attempt=2, leases_without_checkpoint=1, steps_done=7), RUNS, None, None, RUNS.message),
        (
            in_state("COMPLETED", **ENDED),
            RUNS,
            None,
            None,
            "Completed: all 100 steps were done 3 min after it was submitted.",
        ),
        (
            in_state("FAILED", steps_done=30, message="The program ended with exit code 3.", **ENDED),
            RUNS,
            None,
            None,
            "Failed at step 30 of 100, 3 min after it was submitted. The program ended with exit code 3.",
        ),
        (
            in_state("CANCELLED", reason=Reason.CANCELLED, message="", **ENDED),
            RUNS,
            None,
            None,
            "Stopped at step 0 of 100, 3 min after it was submitted. The job was cancelled.",
        ),
    ],
)
def test_each_state_has_its_sentence(
    job: Job, why: Why, start: Expected | None, finish: Expected | None, sentence: str
) -> None:
    assert headline(job, why, start=start, finish=finish, now_s=NOW_S, is_own=True) == sentence


def test_who_reads_of_anothers_job_is_not_addressed() -> None:
    text = headline(in_state("QUEUED"), NEXT, start=SOON, finish=None, now_s=NOW_S)
    assert text == f"{FULL} This job is next in gold; it starts in about 7 s (0 to 14 s)."


@pytest.mark.parametrize(
    ("times_s", "text"),
    [
        ((-3.0, -9.0, 4.0), "within 4 s"),
        ((100.0, 0.0, 119.0), "in about 100 s (0 to 119 s)"),
        ((3000.0, 60.0, 7000.0), "in about 50 min (1 to 117 min)"),
        ((7200.0, 3600.0, 90_000.0), "in about 2 h (1 to 25 h)"),
        ((3e5, 1e5, 1e6), "in about 3 days (1 to 12 days)"),
    ],
)
def test_times_are_told_in_one_unit(times_s: tuple[float, float, float], text: str) -> None:
    assert in_about(*times_s) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (100, "100 s"), (1000, "17 min"), (9000, "2 h"), (400_000, "5 days")]
)
def test_a_duration_is_said_in_one_unit(seconds: float, text: str) -> None:
    assert lasting(seconds) == text
