"""What the failure of a gang says about its execution plan, and where a plan holds."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.jobs.infeasibility import EVIDENCE_CHARACTERS_MAX, failure_under_plan, ruled_out
from gavel.types import ExecutionPlan, GangExit, GangOutcome, InfeasibleType, Job
from tests.builders import a_job

WHY = "it failed before its first step, after plan a had run: "
ROOM = EVIDENCE_CHARACTERS_MAX - len(WHY)


def a_plan(name: str = "b", **over: Any) -> ExecutionPlan:
    return ExecutionPlan(name=name, kind=f"net[{name}]", sizes=(1,), **over)


def a_job_of(plan: ExecutionPlan, *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    """Its plan is in force, beside one that is not."""
    plans = (a_plan("a", accelerator_types=("none",)), plan)
    own = {"plans": plans, "plan": plan.name, "kind": plan.kind}
    return a_job(spec=own | (spec or {}), **{"plan": plan.name} | over)


def an_end(log_tail: str = "KeyError: 'w0'", **over: Any) -> GangExit:
    fields: dict[str, Any] = {"outcome": GangOutcome.EXITED, "exit_code": 1, "message": "rank 0 ended"}
    return GangExit(**fields | over, log_tail=log_tail)


def evidence(log_tail: str = "KeyError: 'w0'", **over: Any) -> str:
    return failure_under_plan(a_job_of(a_plan(), plan_trained="a"), an_end(log_tail, **over), ())


@pytest.mark.parametrize(
    ("trained", "measured", "expected"),
    [
        ("a", (), "a"),
        ("a", ("b", "c"), "a"),
        ("", ("d", "a"), "a"),
        ("b", ("a",), None),
        ("", (), None),
        ("", ("a", "b"), None),
    ],
    ids=[
        "another plan reported last",
        "whatever others know",
        "only others were measured",
        "it has trained under the plan",
        "nobody knows any plan",
        "the plan was measured with other jobs",
    ],
)
def test_a_gang_that_fails_at_once_is_evidence_where_other_plans_are_known(
    trained: str, measured: Collection[str], expected: str | None
) -> None:
    job = a_job_of(a_plan(), plan_trained=trained)
    sentence = (
        "" if expected is None else f"it failed before its first step, after plan {expected} had run: KeyError: 'w0'"
    )
    assert failure_under_plan(job, an_end(), measured) == sentence


def test_a_gang_that_reported_or_did_not_fail_by_itself_is_no_evidence() -> None:
    assert evidence(exit_code=0) == evidence(outcome=GangOutcome.LOST) == ""
    assert evidence(exit_code=-9) == f"{WHY}KeyError: 'w0'"
    assert failure_under_plan(a_job_of(a_plan(), plan_trained="a", report_sequence=1), an_end(), ()) == ""


def test_the_last_line_of_the_log_says_what_went_wrong_or_the_message_of_the_end() -> None:
    assert evidence("first\n\x1b[31m size\tmismatch \n \n") == f"{WHY} [31m size mismatch"
    assert evidence(" \n") == f"{WHY}rank 0 ended"


def test_of_a_long_line_the_end_is_kept() -> None:
    assert evidence("s" + "x" * (ROOM - 1)) == f"{WHY}s" + "x" * (ROOM - 1)
    assert evidence("start" + "x" * (ROOM - 2) + "e") == f"{WHY}…" + "x" * (ROOM - 2) + "e"


@pytest.mark.parametrize(
    ("plan", "types", "memory_bytes"),
    [
        (a_plan(accelerator_types=("!slow",)), ("!slow", "fast"), 7),
        (a_plan(accelerator_memory_bytes=9), ("fast",), 9),
        (a_plan(accelerator_memory_bytes=3), ("fast",), 7),
    ],
    ids=["by its types", "by its memory", "its user asks for more memory"],
)
def test_a_job_is_kept_from_where_its_plan_does_not_hold(
    plan: ExecutionPlan, types: tuple[str, ...], memory_bytes: int
) -> None:
    job = a_job_of(plan, spec={"accelerator_types": ("fast",), "accelerator_memory_bytes": 7})
    where = replace(job.spec, accelerator_types=types, accelerator_memory_bytes=memory_bytes)
    assert ruled_out([job], []) == [replace(job, spec=where)]


def test_a_plan_that_holds_everywhere_changes_nothing() -> None:
    job, none_in_force = a_job_of(a_plan()), a_job_of(a_plan(), spec={"plan": ""})
    assert [a is b for a, b in zip(ruled_out([job, none_in_force], []), [job, none_in_force], strict=True)] == [
        True
    ] * 2


def test_marks_and_the_plan_in_force_exclude_together() -> None:
    job = a_job_of(a_plan(accelerator_types=("!slow",)))
    mark = InfeasibleType(
        user="ann", kind="net[b]", scale_factor=1, accelerator_type="fast", evidence="e", job_id="x", at_s=0.0
    )
    assert ruled_out([job], [mark]) == [replace(job, spec=replace(job.spec, accelerator_types=("!slow", "!fast")))]
