"""A question answered in a process of its own: its answer, its errors, and its limits."""

import json
import math
import os
import sys
import time

import pytest

from gavel.clock import ManualClock
from gavel.errors import InvalidRequest, SolveFailed
from gavel.policies import registry
from gavel.simulator.asking import ask
from gavel.types import Tier

MEMORY = 1 << 30


def test_the_answer_comes_from_another_process() -> None:
    assert ask(math.factorial, 20, time_limit_s=60, memory_limit_bytes=MEMORY) == math.factorial(20)
    child = ask(os.path.realpath, "/proc/self", time_limit_s=60, memory_limit_bytes=MEMORY)
    assert child != os.path.realpath("/proc/self")


def test_a_process_may_have_a_low_priority() -> None:
    asked = [ask(os.nice, 0, time_limit_s=60, memory_limit_bytes=MEMORY, niceness=each) for each in (0, 5)]
    assert asked[1] - asked[0] == 5 or asked[1] == 19  # 19: the tests have a low priority themselves


def test_a_question_larger_than_a_pipe_reaches_a_process_that_starts_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.simulator.asking.POLL_S", 0.001)
    assert ask(len, bytes(4 << 20), time_limit_s=60, memory_limit_bytes=MEMORY) == 4 << 20


def test_what_is_printed_meanwhile_is_not_the_answer() -> None:
    assert ask(print, "hello", time_limit_s=60, memory_limit_bytes=MEMORY) is None


def test_a_question_that_takes_too_long_is_ended() -> None:
    with pytest.raises(SolveFailed, match=r"longer than 0.5 s"):
        ask(time.sleep, 600, time_limit_s=0.5, memory_limit_bytes=MEMORY)


def test_a_question_whose_answer_nobody_waits_for_is_ended() -> None:
    with pytest.raises(SolveFailed, match="nobody waits"):
        ask(time.sleep, 600, time_limit_s=600, memory_limit_bytes=MEMORY, is_wanted=lambda: False)


def test_a_question_that_wants_too_much_memory_is_told_so() -> None:
    with pytest.raises(SolveFailed, match="more memory"):
        ask(bytearray, 1 << 34, time_limit_s=60, memory_limit_bytes=MEMORY)


def test_a_process_that_ends_without_an_answer_says_how() -> None:
    with pytest.raises(SolveFailed, match="exit code 3"):
        ask(sys.exit, 3, time_limit_s=60, memory_limit_bytes=MEMORY)
    with pytest.raises(SolveFailed, match=r"exit code 1 json\.decoder\.JSONDecodeError"):
        ask(json.loads, "{", time_limit_s=60, memory_limit_bytes=MEMORY)


def test_a_refusal_names_its_field_here_too() -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(registry.load, "luck", time_limit_s=60, memory_limit_bytes=4 * MEMORY)
    assert refused.value.field == "policy" and "luck" in refused.value.message


def test_questions_and_answers_keep_our_nouns() -> None:
    assert ask(ManualClock, 5.0, time_limit_s=60, memory_limit_bytes=MEMORY).now_s() == 5.0
    tier = Tier(name="gold", weight=2.0)
    assert ask(str, tier, time_limit_s=60, memory_limit_bytes=MEMORY) == str(tier)
