"""What is started with, while too few jobs have ended to simulate by."""

from dataclasses import replace

import pytest

from gavel.autopilot import goals
from gavel.autopilot.decision import decide
from gavel.autopilot.futures import Arrival
from gavel.autopilot.prior import ENDED_LEAST, start
from tests.autopilot.test_decision import a_question
from tests.simulator.test_lean import RUNNER, a_trace_job

EVERY = ("fifo", "least_remaining_work/backfill=false", "least_attained_service", "max_min_fairness")


def ended(count: int, *errors: float) -> list[Arrival]:
    """Jobs that have ended, stating lengths that are off by these factors in turn, and one that has not."""
    jobs = [a_trace_job(i, "steep", round(100 * errors[i % len(errors)])) for i in range(count)]
    done = [Arrival(job=job, s_per_step=0.25, made_steps=100) for job in jobs]
    return [*done, Arrival(job=a_trace_job(count, "steep", 100), s_per_step=0.25)]


@pytest.mark.parametrize(
    ("goal", "history", "wanted"),
    [
        ("mean_jct", [], "least_attained_service"),
        ("mean_jct", ended(4, 1.0), "least_attained_service"),
        ("mean_jct", ended(6, 1.0, 1.5), "least_remaining_work/backfill=false"),
        ("mean_slowdown,mean_jct", ended(6, 1.0), "least_remaining_work/backfill=false"),
        ("mean_jct", ended(6, 0.1, 10.0), "least_attained_service"),
        ("tail_slowdown", ended(6, 1.0), "least_attained_service"),
        ("mean_jct", ended(ENDED_LEAST, 1.0), None),
        ("makespan", [], None),
        ("mean_jct,money", [], None),
    ],
)
def test_short_jobs_first_where_lengths_are_stated_well_else_those_that_got_least(
    goal: str, history: list[Arrival], wanted: str | None
) -> None:
    assert start(goals.read(goal), EVERY, history) == wanted


SETS = ("least_attained_service", "rank_weighted_speed", "least_remaining_work?work_of=user")


def test_where_the_jobs_of_a_user_count_as_one_its_least_work_first_whatever_is_said_of_lengths() -> None:
    for history in ([], ended(6, 0.1, 10.0), ended(6, 1.0)):
        assert start(goals.read("mean_slowdown,per=user"), SETS, history) == SETS[2]
        assert start(goals.read("tail_slowdown,per=user"), SETS, history) == SETS[0]
    assert start(goals.read("mean_jct,per=user"), EVERY, []) == "least_attained_service"
    assert start(goals.read("mean_jct"), SETS, ended(6, 1.0)) == "rank_weighted_speed"


def test_a_portfolio_without_such_a_composition_has_none() -> None:
    assert start(goals.read("mean_jct"), ("fifo", "dominant_resource_fairness"), []) is None


def test_a_decision_without_history_takes_the_start_and_tells_why() -> None:
    question = a_question(candidates=("fifo", "least_attained_service"), history=())
    decision = decide(question, RUNNER)
    assert decision.chosen == "least_attained_service" and "a sound start" in decision.reason
    limited = decide(replace(question, goal=goals.read("mean_slowdown,longest_wait_s<=1")), RUNNER)
    assert limited.chosen == "fifo" and "a sound start" not in limited.reason
    rested = decide(replace(question, candidates=("fifo", "shortest_job_first")), RUNNER)
    assert "a sound start" not in rested.reason
