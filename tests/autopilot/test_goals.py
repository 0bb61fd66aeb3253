"""Goals: what an operator wants, in one string, and what it costs jobs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.autopilot.course import Course
from gavel.autopilot.goals import MEASURES, Goal, costs, read, tail_from
from gavel.errors import InvalidRequest
from tests.simulator.test_simulation import FULL

positive = st.floats(1e-3, 1e6)
goals = st.builds(
    lambda weights, limits: Goal(weights=tuple(sorted(weights.items())), **limits),
    st.dictionaries(st.sampled_from(sorted(MEASURES)), positive, min_size=1),
    st.fixed_dictionaries(
        {},
        optional={
            "longest_wait_s": positive,
            "least_share": positive,
            "per_user": st.booleans(),
            "tier": st.just("gold"),
        },
    ),
)


def a_course(*ends_s: float, **over: Any) -> Course:
    """Jobs that arrived at 0 and would take 10 s alone and 40 s on an equal share, from 0 to the last end."""
    n = len(ends_s)
    fields: dict[str, Any] = {
        "from_s": 0.0,
        "until_s": max(ends_s, default=0.0),
        "indices": np.arange(n),
        "submitted_at_s": np.zeros(n),
        "ended_at_s": np.array(ends_s),
        "ideal_s": np.full(n, 10.0),
        "isolated_s": np.full(n, 40.0),
        "deadline_at_s": np.full(n, math.inf),
        "cost_usd": np.ones(n),
        "user": np.arange(n),
        "tier": np.zeros(n, dtype=np.int64),
        "tiers": ("gold", "free"),
    }
    return Course(**fields | over)


@settings(max_examples=500 if FULL else 50)
@given(goal=goals)
def test_the_text_of_a_goal_is_read_back_to_it(goal: Goal) -> None:
    assert read(goal.text) == goal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean_jtc", r"there is no 'mean_jtc'; choose of mean_jct, .*; did you mean mean_jct\?"),
        ("mean_jct=high", "'mean_jct=high': give a positive number"),
        ("mean_jct=nan", "give a positive number"),
        ("mean_jct=0", "give a positive number"),
        ("mean_jct,mean_jct=2", "names mean_jct twice"),
        ("longest_wait_s<=60", "has limits only; name what to make small: mean_jct, "),
        ("mean_jct,longest_wait_s<=soon", "give a positive number"),
        ("", "there is no ''"),
        ("mean_jct,tier=", "name one tier, as tier=gold, or none"),
        ("mean_jct,tier=gold,tier=free", "name one tier, as tier=gold, or none"),
    ],
)
def test_what_is_no_goal_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(text)


def test_costs_by_hand() -> None:
    """Two jobs end after 20 and 60 s; the second is 10 s late."""
    result = costs(a_course(20.0, 60.0, deadline_at_s=np.array([math.inf, 50.0])))
    assert result == pytest.approx(
        {
            "mean_jct": 40.0,
            "mean_slowdown": 4.0,
            "tail_slowdown": 5.96 + (6.0 - 5.96) / 2 / 0.01,
            "finish_time_fairness": 0.25,
            "makespan": 60.0,
            "tardiness": 5.0,
            "money": 1.0,
        }
    )


def test_no_jobs_cost_nothing() -> None:
    assert set(costs(a_course()).values()) == {0.0}


@settings(max_examples=300 if FULL else 40)
@given(
    ends_s=st.lists(st.floats(0, 1e5), min_size=1, max_size=20),
    cut=st.floats(0, 1),
    deadline_s=st.floats(0, 1e5),
)
def test_what_two_stretches_of_time_cost_is_what_they_cost_together(
    ends_s: list[float], cut: float, deadline_s: float
) -> None:
    whole = a_course(*ends_s, deadline_at_s=np.full(len(ends_s), deadline_s))
    cut_s = cut * whole.until_s
    first = whole.until(cut_s, len(ends_s))
    rest = replace(whole, from_s=cut_s, ended_at_s=np.maximum(whole.ended_at_s, cut_s))
    for name in ("mean_jct", "mean_slowdown", "finish_time_fairness", "tardiness"):
        assert costs(first)[name] + costs(rest)[name] == pytest.approx(costs(whole)[name], abs=1e-6)


@settings(max_examples=200 if FULL else 30)
@given(ends_s=st.lists(st.floats(10, 1e5), min_size=1, max_size=30), later_s=st.floats(0, 1e4))
def test_nothing_gets_cheaper_if_every_job_ends_later(ends_s: list[float], later_s: float) -> None:
    before = costs(a_course(*ends_s), tail_from=5.0)
    after = costs(a_course(*(end_s + later_s for end_s in ends_s)), tail_from=5.0)
    assert all(after[name] >= before[name] - 1e-6 for name in MEASURES)


def test_the_tail_begins_where_one_per_cent_of_the_jobs_are_slower() -> None:
    course = a_course(*(10.0 * (i + 1) for i in range(100)))
    assert 98 < tail_from([course]) < 100


def test_a_weighted_sum_is_of_costs_relative_to_their_scale_and_leaves_out_what_nobody_pays() -> None:
    goal = read("mean_jct=2,money=1,tardiness=5")
    course = costs(a_course(20.0, 60.0))
    assert goal.cost(course, {"mean_jct": 20.0, "money": 4.0, "tardiness": 0.0}) == pytest.approx(2 * 2.0 + 0.25)


@pytest.mark.parametrize(
    ("limit", "admits"),
    [
        ("longest_wait_s<=30", True),
        ("longest_wait_s<=29", False),
        ("least_share>=0.6", True),
        ("least_share>=0.7", False),
    ],
)
def test_limits_admit_courses_that_keep_them(limit: str, admits: bool) -> None:
    """The slowest job takes 60 s instead of 40 s on an equal share; one waits 30 s for its first start."""
    course = a_course(20.0, 60.0, longest_wait_s=30.0)
    assert read(f"mean_jct,{limit}").admits(course) is admits


def test_the_jobs_of_a_user_may_count_as_one_from_the_first_submission_to_the_last_end() -> None:
    course = a_course(30.0, 50.0, 20.0, user=np.array([0, 0, 1]), submitted_at_s=np.array([5.0, 0.0, 0.0]))
    of_users = costs(read("mean_jct,per=user").counted(course))
    assert of_users["mean_jct"] == (50.0 + 20.0) / 2 and of_users["mean_slowdown"] == (5.0 + 2.0) / 2
    assert of_users["money"] == 1.5
    assert costs(read("mean_jct").counted(course))["mean_jct"] == (25.0 + 50.0 + 20.0) / 3


def test_only_the_jobs_of_its_tier_count_for_the_goal_of_a_tier() -> None:
    """Two jobs of gold end after 20 and 40 s, one of free after 90 s; nobody has jobs in the third."""
    course = a_course(20.0, 40.0, 90.0, tier=np.array([0, 0, 1]))
    assert [costs(read(f"mean_jct{of}").counted(course))["mean_jct"] for of in ("", ",tier=gold", ",tier=free")] == [
        50.0,
        30.0,
        90.0,
    ]
    assert costs(read("mean_jct,tier=none").counted(course))["mean_jct"] == 0.0
