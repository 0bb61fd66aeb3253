"""When the autopilot decides next: each epoch, early after a change, and never for more than a tenth of a core."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.autopilot.schedule import CPU_PART, Attempt, Circumstances, next_decision
from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.simulator.test_simulation import FULL

HOUR_S = 3600.0
SETTING = AutopilotSetting(epoch_s=800.0)
CALM = Circumstances(setting=SETTING, workers=(("fast", 2),), jobs=8)


def an_attempt(at_s: float = 1000.0, cpu_s: float = 1.0) -> Attempt:
    return Attempt(at_s=at_s, cpu_s=cpu_s, of=CALM)


@pytest.mark.parametrize("mode", [AutopilotMode.OFF, AutopilotMode.PIN])
def test_an_autopilot_that_may_choose_nothing_never_decides(mode: AutopilotMode) -> None:
    assert next_decision(replace(CALM, setting=replace(SETTING, mode=mode)), [], 5.0, 0.0).at_s == inf


def test_the_first_advice_takes_its_time_and_auto_begins_at_once() -> None:
    auto = replace(CALM, setting=replace(SETTING, mode=AutopilotMode.AUTO))
    assert next_decision(auto, [], 5.0, 5.0).at_s == 5.0
    assert next_decision(CALM, [], 5.0, 5.0).at_s == 105.0
    assert next_decision(CALM, [], 5.0).at_s == inf, "nobody knows since when the scheduler has led"


def test_without_jobs_there_is_nothing_to_decide() -> None:
    assert next_decision(replace(CALM, jobs=0), [an_attempt()], 5000.0).at_s == inf


def test_a_changed_setting_is_decided_on_at_once() -> None:
    due = next_decision(replace(CALM, setting=replace(SETTING, goal="money")), [an_attempt()], 1001.0)
    assert (due.at_s, due.why) == (1001.0, "the setting has changed")


def test_without_a_change_it_decides_once_an_epoch() -> None:
    assert next_decision(CALM, [an_attempt()], 1001.0).at_s == 1800.0


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(CALM, workers=(("fast", 1),)), "the cluster has changed"),
        (replace(CALM, jobs=11), "there are 11 jobs, and were 8"),
        (replace(CALM, jobs=5), "there are 5 jobs, and were 8"),
    ],
)
def test_a_change_is_decided_on_early(now: Circumstances, why: str) -> None:
    due = next_decision(now, [an_attempt()], 1001.0)
    assert (due.at_s, due.why) == (1100.0, why)


@pytest.mark.parametrize("jobs", [6, 8, 10])
def test_a_small_change_of_the_queue_is_none(jobs: int) -> None:
    assert next_decision(replace(CALM, jobs=jobs), [an_attempt()], 1001.0).why == "the epoch is over"


def test_after_dear_decisions_the_next_one_waits_and_says_so() -> None:
    """Three of 150 s are 450 s; a tenth of an hour is 360 s, so that the first one must be an hour ago."""
    attempts = [an_attempt(at_s, 150.0) for at_s in (0.0, 800.0, 1600.0)]
    due = next_decision(CALM, attempts, 2500.0)
    assert due.at_s == HOUR_S and "more than 10 % of a core" in due.why


attempts_of = st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 500)), min_size=1, max_size=12).map(
    lambda pairs: [an_attempt(at_s, cpu_s) for at_s, cpu_s in sorted(pairs)]
)


@settings(max_examples=500 if FULL else 60)
@given(attempts=attempts_of, now_s=st.floats(0, 9000), jobs=st.integers(1, 20))
def test_no_hour_before_a_decision_has_more_than_its_part_of_a_core(
    attempts: list[Attempt], now_s: float, jobs: int
) -> None:
    """1 what is due is never past an epoch unless the CPU was spent, 2 at that instant there is CPU time left."""
    due = next_decision(replace(CALM, jobs=jobs), attempts, now_s)
    at_s = max(due.at_s, now_s)
    spent_s = sum(each.cpu_s for each in attempts if min(each.at_s, now_s) + HOUR_S > at_s)
    assert spent_s <= CPU_PART * HOUR_S + 1e-6
    if "waits" not in due.why:
        assert due.at_s <= min(attempts[-1].at_s, now_s) + SETTING.epoch_s
    assert at_s <= now_s + HOUR_S + SETTING.epoch_s


@settings(max_examples=200 if FULL else 30)
@given(attempts=attempts_of, now_s=st.floats(0, 9000), later_s=st.floats(0, 3000))
def test_an_instant_that_is_due_stays_while_nothing_changes(
    attempts: list[Attempt], now_s: float, later_s: float
) -> None:
    now_s = max(now_s, attempts[-1].at_s)
    due = next_decision(CALM, attempts, now_s)
    again_s = min(now_s + later_s, max(now_s, due.at_s))
    assert next_decision(CALM, attempts, again_s).at_s <= max(due.at_s, again_s)
