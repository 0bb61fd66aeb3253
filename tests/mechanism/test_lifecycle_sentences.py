"""How the end of a gang is told, and what follows it."""

from dataclasses import replace

import pytest

from gavel.mechanism.jobs.events import EventKind
from gavel.mechanism.jobs.lifecycle import ended
from gavel.types import GangExit, GangOutcome, Reason
from tests.mechanism.test_lifecycle_fields import EXIT, LEASED, USED, a_gang


def test_the_end_of_a_gang_is_told_with_its_time() -> None:
    end = ended(LEASED, a_gang(until_s=16.0), 30.0)
    assert end is not None
    assert (end.at_s, end.generation, end.exit, end.held_s) == (16.0, 3, EXIT, 6.0)
    assert end.message == "The program ended with exit code 3 on fast at step 40 of 100. M."
    never = replace(a_gang(since_s=None, until_s=16.0), ended_at_s=None)
    later = ended(LEASED, never, 30.0)
    assert later is not None and (later.at_s, later.held_s) == (30.0, 0.0)
    unknown = ended(LEASED, replace(a_gang(until_s=16.0), ended_at_s=None), 30.0)
    assert unknown is not None and unknown.held_s == 20.0
    backwards = ended(LEASED, a_gang(since_s=18.0, until_s=16.0), 30.0)
    assert backwards is not None and backwards.held_s == 0.0
    assert ended(LEASED, a_gang(), 30.0) is None
    assert ended(USED, a_gang(until_s=16.0), 30.0) is None
    assert ended(LEASED, replace(a_gang(until_s=16.0), exit=None), 30.0) is None


@pytest.mark.parametrize(
    ("outcome", "code", "over", "message"),
    [
        (GangOutcome.EXITED, 0, {"report_sequence": 0}, "The job has completed 100 steps."),
        (GangOutcome.PREEMPTED, 75, {"cancel_requested": True}, "The job was cancelled on fast at step 40 of 100."),
        (GangOutcome.PREEMPTED, 75, {"pause_requested": True}, "The job was paused on fast at step 40 of 100."),
        (
            GangOutcome.PREEMPTED,
            75,
            {},
            "The lease ended on fast at step 40 of 100. The job waits for its next round.",
        ),
        (GangOutcome.LOST, 0, {}, "The gang was lost on fast at step 40 of 100: m."),
        (GangOutcome.NOT_STARTED, 127, {}, "M."),
        (
            GangOutcome.EXITED,
            0,
            {},
            "The program exited with code 0 on fast at step 40 of 100: its loop was left early. If it is meant to end "
            "there, call job.finish(), or run.finish() of an adapter, before it leaves the loop.",
        ),
        (GangOutcome.EXITED, -9, {}, "The program ended with signal 9 on fast at step 40 of 100. M."),
        (GangOutcome.EXITED, 1, {}, "The program ended with exit code 1 on fast at step 40 of 100. M."),
    ],
)
def test_each_end_is_told_in_whole_sentences(
    outcome: GangOutcome, code: int, over: dict[str, object], message: str
) -> None:
    seen = replace(a_gang(until_s=16.0), exit=GangExit(outcome=outcome, exit_code=code, message="m"))
    end = ended(replace(LEASED, **over), seen, 30.0)
    assert end is not None and end.message == message


@pytest.mark.parametrize(
    ("reported", "sentence"), [("", ""), ("it broke.", " It broke."), ("it has no X", " It has no X.")]
)
def test_what_a_backend_reports_of_an_end_is_the_last_sentence_if_there_is_any(reported: str, sentence: str) -> None:
    seen = replace(a_gang(until_s=16.0), exit=replace(EXIT, message=reported))
    for retries in (0, 9):
        end = ended(replace(LEASED, spec=replace(LEASED.spec, max_retries=retries)), seen, 30.0)
        again = "" if retries == 0 else " Retry 7 of 9 follows."
        assert end is not None
        assert end.message == f"The program ended with exit code 3 on fast at step 40 of 100.{again}{sentence}"


def test_a_program_that_fails_may_have_retries_left() -> None:
    retried = replace(LEASED, failures=1, spec=replace(LEASED.spec, max_retries=2))
    end = ended(retried, a_gang(until_s=16.0), 30.0)
    assert end is not None and (end.kind, end.reason) == (EventKind.RETRIED, Reason.RETRYING)
    assert end.message == "The program ended with exit code 3 on fast at step 40 of 100. Retry 2 of 2 follows. M."
    over = ended(replace(retried, failures=2), a_gang(until_s=16.0), 30.0)
    assert over is not None and (over.kind, over.reason) == (EventKind.BROKE, Reason.PROGRAM_FAILED)
    lost = ended(
        LEASED, replace(a_gang(until_s=16.0), exit=GangExit(outcome=GangOutcome.LOST, exit_code=0, message="")), 30.0
    )
    assert lost is not None and lost.message.endswith("at step 40 of 100: its supervisor is gone.")
    endless = replace(LEASED, spec=replace(LEASED.spec, total_steps=None))
    done = replace(a_gang(until_s=16.0), exit=GangExit(outcome=GangOutcome.EXITED, exit_code=0, message=""))
    end = ended(endless, done, 30.0)
    assert end is not None
    assert end.message == "The program has ended with exit code 0; it did not say how many steps it has."
    end = ended(replace(LEASED, steps_done=90, last_step=90), done, 30.0)
    assert end is not None
    assert end.message == "The program ended its training after step 90, before the 100 steps it had."
