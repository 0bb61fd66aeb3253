"""The size and the plan that a job has: whole jobs are compared, before and after they get others."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.jobs.sizes import resized, sizes_taken, under_plan, variants_of
from gavel.types import ExecutionPlan, Job, JobState
from tests.builders import a_job, a_problem

WIDE = ExecutionPlan(name="wide", kind="net[wide]", sizes=(2, 4))
ANY = ExecutionPlan(name="any", kind="net[any]", sizes=(1, 2, 4))
ELASTIC = {"sizes": (1, 2, 4), "global_batch": 64, "scale_factor": 2}


def elastic(job_id: str = "j", *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    return a_job(job_id, spec=ELASTIC | (spec or {}), **over)


def with_plans(*plans: ExecutionPlan, **over: Any) -> Job:
    """The first is in force."""
    spec = {"plans": plans, "plan": plans[0].name, "kind": plans[0].kind}
    return elastic(spec=spec, plan=plans[0].name, size=2, **over)


def test_a_job_in_another_size_has_held_the_same_worker_seconds() -> None:
    job = elastic(received_s={"fast": 10.0, "slow": 4.0}, shared_s={"fast": 6.0})
    assert resized(job, 4) == replace(
        job,
        size=4,
        spec=replace(job.spec, scale_factor=4),
        received_s={"fast": 5.0, "slow": 2.0},
        shared_s={"fast": 3.0},
    )


def test_the_first_size_of_a_job_may_be_the_one_that_its_user_named() -> None:
    job = elastic(received_s={"fast": 10.0})
    assert resized(job, 2) == replace(job, size=2)
    assert resized(resized(job, 2), 2).received_s is job.received_s


def test_a_job_that_has_the_size_or_is_rigid_stays_the_same_object() -> None:
    sized, rigid = elastic(size=2), a_job()
    assert resized(sized, 2) is sized and resized(rigid, 2) is rigid


def test_a_plan_that_does_not_hold_at_the_new_size_gives_way_to_the_first_that_does() -> None:
    job = with_plans(WIDE, ANY, ExecutionPlan(name="last", kind="net[last]", sizes=(1,)))
    small = replace(job.spec, scale_factor=1, plan="any", kind="net[any]")
    assert resized(job, 1) == replace(job, size=1, plan="any", spec=small)
    assert resized(job, 4) == replace(job, size=4, spec=replace(job.spec, scale_factor=4))
    alone = with_plans(WIDE)
    assert resized(alone, 1) == replace(alone, size=1, spec=replace(alone.spec, scale_factor=1))


def test_a_job_gets_another_of_its_plans() -> None:
    job = with_plans(WIDE, ANY)
    assert under_plan(job, "any") == replace(job, plan="any", spec=replace(job.spec, plan="any", kind="net[any]"))


def test_a_job_that_has_the_plan_or_has_none_at_all_stays_the_same_object() -> None:
    job, without = with_plans(WIDE, ANY), a_job()
    assert under_plan(job, "wide") is job and under_plan(without, "wide") is without


def test_the_variants_of_a_job_are_its_sizes_and_in_each_the_plans_that_hold_there() -> None:
    job = with_plans(WIDE, ANY)
    (one, two), four = (resized(job, size) for size in (1, 2)), resized(job, 4)
    assert variants_of(job) == [
        one,
        *(replace(each, spec=under_plan(each, plan).spec) for each in (two, four) for plan in ("wide", "any")),
    ]
    unplanned = elastic()
    assert variants_of(unplanned) == [resized(unplanned, size) for size in (1, 2, 4)]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (elastic("j0", size=2), [4]),
        (elastic("j0"), [4]),
        (elastic("j0", size=4, spec={"scale_factor": 4}), []),
        (elastic("j0", size=2, state=JobState.LEASED), []),
        (elastic("not in the round", size=2), []),
    ],
    ids=["another size", "its first size", "the size that it has", "it runs", "not in the round"],
)
def test_elastic_jobs_that_wait_take_the_sizes_of_the_round(job: Job, expected: list[int]) -> None:
    problem = a_problem([[1.0], [1.0]], [8], scale_factor=[4, 1])
    plain = elastic("j1", size=2)
    taken = [*(resized(job, size) for size in expected), resized(plain, 1)]
    assert sizes_taken({job.id: job, "j1": plain}, problem) == taken
    assert sizes_taken({"j1": replace(plain, state=JobState.LEASED)}, problem) == []
