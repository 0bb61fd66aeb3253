"""Planted drifts and liars: a workload that changes its nature, and a composition whose simulations are too rosy."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.autopilot import decision, goals, lesson
from gavel.autopilot.composition import Composition
from gavel.autopilot.course import Course
from gavel.autopilot.rollout import rolled_out
from gavel.autopilot.safety import EPOCHS
from tests.autopilot.test_decision import a_flight, flown
from tests.autopilot.test_rollout import CLUSTER
from tests.simulator.test_lean import a_scenario, a_trace_job
from workloads.traces.job import TraceJob

GANGS = ("fifo", "smallest_gang_first")  # no prior of the autopilot's: only simulations choose
CHANGE_S, EPOCH_S = 400.0, 100.0


def alike(index: int) -> TraceJob:
    return a_trace_job(index, "flat", 20, at_s=10.0 * index)


def mixed(index: int) -> TraceJob:
    """A long gang of two every third time, else a short job of one."""
    is_gang = index % 3 == 0
    steps, size = (150, 2) if is_gang else (10, 1)
    return a_trace_job(index, "flat", steps, at_s=10.0 * index, size=size)


@pytest.mark.full
def test_a_workload_that_changes_its_nature_is_noticed_within_two_epochs() -> None:
    """First all jobs are alike, so that no order is better; then long gangs make short jobs wait."""
    jobs = [alike(i) if 10.0 * i < CHANGE_S else mixed(i) for i in range(100)]
    ran = flown(jobs, a_flight(candidates=GANGS, epoch_s=EPOCH_S, goal=goals.read("mean_slowdown")))
    before = [each for each in ran.decisions if each.at_s <= CHANGE_S]
    after = [each for each in ran.decisions if CHANGE_S < each.at_s <= CHANGE_S + 2.5 * EPOCH_S]
    assert len(before) >= 4 and {each.chosen for each in before} == {"fifo"}
    assert "smallest_gang_first" in {each.chosen for each in after}


LIE = 0.3


def rosy(*asked: Any) -> Course:
    """Return the course as it is simulated; that of the liar ends its jobs far too soon."""
    course, composition = rolled_out(*asked), asked[1]
    assert isinstance(composition, Composition)
    if composition.policy != "fifo":
        return course
    began_s = course.submitted_at_s.clip(min=course.from_s)
    return replace(course, ended_at_s=began_s + LIE * (course.ended_at_s - began_s))


@pytest.mark.full
def test_a_composition_whose_simulations_are_too_rosy_is_left_once_its_real_costs_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision, "rolled_out", rosy)
    monkeypatch.setattr(lesson, "rolled_out", rosy)
    jobs = [mixed(i) for i in range(150)]
    flight = a_flight(candidates=tuple(reversed(GANGS)), epoch_s=EPOCH_S)
    ran = flown(jobs, flight, a_scenario(CLUSTER, "fifo"))
    chosen = [each.chosen for each in ran.decisions]
    first = chosen.index("fifo")
    assert "smallest_gang_first" in chosen[first : first + EPOCHS + 2], chosen
    assert chosen[first:].count("fifo") < 0.5 * len(chosen[first:]), chosen
