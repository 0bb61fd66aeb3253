"""What is said of the execution plans of a job: its speeds under each of them, and why it has the one in force."""

from typing import Any

import pytest

from gavel.mechanism.explaining.plans import PlanSpeed, plan_sentence
from gavel.mechanism.jobs.sizes import under_plan
from gavel.types import Job, JobState
from tests.mechanism.test_plans import planned, plans


def speeds(**rates: float | None) -> list[PlanSpeed]:
    """On `fast`, None: it was not measured; and one on another type, which says nothing there."""
    there = [
        PlanSpeed(plan=name, accelerator_type="fast", steps_per_s=rate, note="" if rate else "not measured")
        for name, rate in rates.items()
    ]
    return [*there, PlanSpeed(plan="b", accelerator_type="slow", steps_per_s=99.0)]


def job(plan: str = "a", **over: Any) -> Job:
    over = {"state": JobState.LEASED, **over}
    made = planned("j", plans("a", "b"))
    return under_plan(Job(**{**{name: getattr(made, name) for name in ("id", "spec")}, **over}), plan)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"a": 10.0, "b": 4.0}, "under plan a on fast, 10 steps/s: no plan is known to be faster there. The others"),
        ({"a": 10.0, "b": None}, "no plan is known to be faster there. The others there: b not measured."),
        ({"a": 10.0, "b": 11.0}, "a faster one would not pay for a restart yet. The others there: b 11 steps/s."),
        ({"a": None, "b": 11.0}, "under plan a on fast, not measured: it is tried, and kept if it is faster."),
    ],
)
def test_the_plan_in_force_is_told_with_its_reason_beside_the_others(rates: dict[str, Any], words: str) -> None:
    assert words in plan_sentence(job(), speeds(**rates), "fast")


def test_a_job_that_waits_says_which_plans_it_has_and_one_without_plans_says_nothing() -> None:
    assert "has the plans a, b" in plan_sentence(job(state=JobState.QUEUED), speeds(a=1.0, b=2.0), None)
    assert plan_sentence(job(), [], "fast") == ""
