"""Who keeps a place in the next round, on which workers, and under which generation and plan."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.types import Job, Lease
from tests.builders import a_cluster, a_job
from tests.mechanism.planning import Planning
from tests.mechanism.test_planned_rounds import a_lease, following, leased, leases, now
from tests.mechanism.test_planner import a_view, packed

# --- who stays ----------------------------------------------------------------------------------------------------


def a_pair_of_jobs(first: Job, lease: Lease, **over: Any) -> Planning:
    """One worker; job a had it in the round before, and all of it is for job b now."""
    return following(a_view([first, a_job("b")], a_cluster(fast=1), [[0.0], [1.0]], **over), lease)


@pytest.mark.parametrize(
    ("view", "inputs", "expected"),
    [
        (a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0")), {}, "b"),
        (a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0")), {"starting": ("a",)}, "a"),
        (a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0")), {"starting": ("b",)}, "b"),
        (
            a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0"), minimum_run_s=15.0),
            {"started_at_s": {"a": 16.0}},
            "a",
        ),
        (
            a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0"), minimum_run_s=15.0),
            {"started_at_s": {"a": 15.0}},
            "b",
        ),
        (a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0"), minimum_run_s=1.0), {}, "a"),
        (a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-7")), {"starting": ("a",)}, "b"),
        (a_pair_of_jobs(a_job("a", generation=1), a_lease("a", 1, "fast-0")), {"starting": ("a",)}, "b"),
        (a_pair_of_jobs(a_job("a"), a_lease("a", 1, "fast-0")), {"starting": ("a",)}, "a"),
        (
            a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0", is_profiling=True), minimum_run_s=15.0),
            {"started_at_s": {"a": 20.0}},
            "b",
        ),
        (
            a_pair_of_jobs(leased("a"), a_lease("a", 1, "fast-0", is_profiling=True), minimum_run_s=15.0),
            {"starting": ("a",)},
            "a",
        ),
    ],
    ids=[
        "nobody has to stay",
        "it starts",
        "the other one starts",
        "it has not run for the minimum",
        "it has run for the minimum",
        "it is about to start",
        "its worker is gone",
        "it has ended",
        "it is about to start, and starts",
        "it was only profiled",
        "it was profiled, and starts",
    ],
)
def test_a_gang_stays_while_it_starts_or_is_young(view: Planning, inputs: dict[str, Any], expected: str) -> None:
    assert [lease.job_id for lease in leases(view, **inputs)] == [expected]


def test_all_gangs_that_start_stay() -> None:
    jobs = [leased("a"), leased("b"), a_job("c"), a_job("d")]
    view = a_view(jobs, a_cluster(fast=2), [[0.0], [0.0], [1.0], [1.0]])
    view = following(view, a_lease("a", 1, "fast-0"), a_lease("b", 1, "fast-1"))
    assert leases(view, starting=("a", "b")) == [now("a", 1, "fast-0"), now("b", 1, "fast-1")]


def test_a_gang_that_has_run_its_minimum_keeps_its_place_for_half_of_that_much_more() -> None:
    """Two rounds: the other one has to lag by more than a round more."""
    for share, expected in ((0.9, "a"), (1.3, "b")):
        view = a_view([leased("a"), a_job("b")], a_cluster(fast=1), [[0.2], [share]], minimum_run_s=20.0)
        view = replace(following(view, a_lease("a", 1, "fast-0")), started_at_s={"a": 0.0})
        assert [lease.job_id for lease in leases(view)] == [expected]


def test_a_gang_that_lost_a_part_of_its_workers_does_not_stay() -> None:
    jobs = [leased("a", spec={"scale_factor": 2}), a_job("b")]
    view = following(a_view(jobs, a_cluster(fast=2), [[0.0], [1.0]]), a_lease("a", 1, "fast-0", "fast-7"))
    assert [lease.job_id for lease in leases(view, starting=("a",))] == ["b"]


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        (("a", "b"), [("a", ("a", "b")), ("b", ("a", "b"))]),
        (("a",), [("a", ("a",))]),
        (("b",), [("b", ("b",))]),
    ],
)
def test_two_that_share_workers_stay_together_and_one_of_them_alone(
    starting: tuple[str, ...], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    """All the time is for a third job, or for another pair."""
    jobs = [leased("a"), leased("b"), a_job("c"), a_job("d")]
    pair = [a_lease(name, 1, "fast-0", combination=("a", "b")) for name in "ab"]
    view = following(a_view(jobs, a_cluster(fast=1), [[0.0]] * 4), *pair)
    for combinations in ({("c",): [1.0]}, {("c", "d"): [1.0]}, {("b", "a"): [0.0], ("c", "d"): [1.0]}):
        given = leases(packed(view, combinations), starting=starting)
        assert [(lease.job_id, lease.combination) for lease in given] == expected
    other = leases(packed(view, {("b", "a"): [0.1], ("c",): [0.9]}), starting=("a", "b"))
    assert [(lease.job_id, lease.combination) for lease in other] == [("b", ("b", "a")), ("a", ("b", "a"))]


def test_a_guest_of_a_session_that_stays_has_no_place_to_keep() -> None:
    """With a price on moves a gang keeps its place; one that was beside a session had none of its own."""
    jobs = [leased("a"), a_job("b")]
    view = following(
        a_view(jobs, a_cluster(fast=1), [[0.2], [0.5]], switch_cost_s={"mlp": 5.0}),
        a_lease("a", 1, "fast-0", combination=("s", "a")),
    )
    session = a_lease("s", 1, "fast-1")
    assert [lease.job_id for lease in leases(view)] == ["a"]
    assert [lease.job_id for lease in leases(view, kept=(session,))] == ["b"]
    assert [lease.job_id for lease in leases(view, kept=(replace(session, job_id="x"),))] == ["a"]
    alone = following(view, a_lease("a", 1, "fast-0"))
    assert [lease.job_id for lease in leases(alone, kept=(replace(session, job_id="a"),))] == ["a"]


def test_a_gang_on_a_type_that_is_gone_had_no_place_to_keep() -> None:
    view = following(a_view([leased("a"), a_job("b")], a_cluster(fast=1), [[0.5], [0.5]]), a_lease("a", 1, "gone-0"))
    assert leases(view) == [now("a", 2, "fast-0")]


# --- workers and generations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "lease", "expected"),
    [
        (leased("a", 3), a_lease("a", 3, "fast-1"), now("a", 3, "fast-1")),
        (a_job("a", generation=2), a_lease("a", 3, "fast-1"), now("a", 3, "fast-1")),
        (a_job("a", generation=3), a_lease("a", 3, "fast-1"), now("a", 4, "fast-1")),
        (leased("a", 4), a_lease("a", 3, "fast-1"), now("a", 5, "fast-1")),
        (leased("a", 3), a_lease("a", 3, "fast-7"), now("a", 4, "fast-0")),
        (a_job("a", generation=2), a_lease("a", 4, "fast-7"), now("a", 5, "fast-0")),
        (leased("a", 3), a_lease("b", 9, "fast-1"), now("a", 4, "fast-0")),
    ],
    ids=["goes on", "about to start", "ended", "newer", "moves", "moves before it starts", "no lease"],
)
def test_a_gang_that_goes_on_keeps_workers_and_generation_and_any_other_has_a_higher_one(
    job: Job, lease: Lease, expected: Lease
) -> None:
    assert leases(following(a_view([job], a_cluster(fast=2), [[1.0]]), lease)) == [expected]


@pytest.mark.parametrize(
    ("plan_on", "before", "expected"),
    [
        ({}, a_lease("a", 3, "fast-0", plan="one"), now("a", 3, "fast-0", plan="one")),
        ({"a": {"fast": "one"}}, a_lease("a", 3, "fast-0", plan="one"), now("a", 3, "fast-0", plan="one")),
        ({"a": {"fast": "two"}}, a_lease("a", 3, "fast-0", plan="one"), now("a", 4, "fast-0", plan="two")),
        ({"a": {"slow": "two"}}, a_lease("a", 3, "fast-0", plan="one"), now("a", 3, "fast-0", plan="one")),
        ({"b": {"fast": "two"}}, a_lease("a", 3, "slow-0", plan="one"), now("a", 4, "fast-0")),
        ({"a": {"fast": "two"}}, a_lease("b", 3, "fast-0", plan="one"), now("a", 4, "fast-0", plan="two")),
        ({}, a_lease("b", 3, "fast-0", plan="one"), now("a", 4, "fast-0")),
    ],
    ids=["none any more", "the same", "another", "of another type", "moves", "starts", "starts without one"],
)
def test_a_gang_has_the_plan_of_its_type_and_another_generation_under_another_plan(
    plan_on: dict[str, dict[str, str]], before: Lease, expected: Lease
) -> None:
    view = following(a_view([leased("a", 3)], a_cluster(fast=1, slow=1), [[1.0, 0.0]]), before)
    assert leases(view, plan_on=plan_on) == [expected]


def test_a_gang_that_has_ended_keeps_its_place_unless_a_live_one_has_a_worker_of_it() -> None:
    """1. Job a ended on the second worker. 2. It starts there again. 3. Job b was given that worker meanwhile."""
    jobs = [a_job("a", generation=3), leased("b", 1)]
    view = a_view(jobs, a_cluster(fast=3), [[1.0], [1.0]])
    apart = following(view, a_lease("a", 3, "fast-1"), a_lease("b", 1, "fast-2"))
    assert leases(apart) == [now("a", 4, "fast-1"), now("b", 1, "fast-2")]
    together = following(view, a_lease("a", 3, "fast-1"), a_lease("b", 1, "fast-1"))
    assert leases(together) == [now("a", 4, "fast-0"), now("b", 1, "fast-1")]
