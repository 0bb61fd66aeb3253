"""A user whose programs never report holds no more than a stated part of the cluster beyond the allocation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.planning.start_budget import REFILL, charged, cluster_s
from gavel.types import Check, JobState, ServiceSpec, Serving
from tests.builders import a_cluster, a_job
from tests.mechanism.world import GRACE_S, RATES, World, a_cluster_of_nodes

STATED = {"throughput_steps_per_s": {"fast": 10.0}}
LIMIT_S = 100.0
ROUND_S = 10.0


def a_world(workers: int) -> World:
    """Programs of the kind `stuck` never report, all others after a second."""
    return World(
        cluster=a_cluster_of_nodes(n0=" ".join(["fast"] * workers)),
        rates={**RATES, ("stuck", 1, "fast"): 10.0},
        switch_cost_s={"stuck": 1e9, "": 1.0},  # type: ignore[arg-type]
        gang_grace_s=GRACE_S,
        start_limit_s=LIMIT_S,
    )


def held_s(world: World, user: str) -> float:
    """Return the worker seconds that the user's jobs have held."""
    jobs = world.store.snapshot().jobs.values()
    return sum(sum(job.received_s.values()) for job in jobs if job.spec.user == user)


@settings(max_examples=2)
@given(workers=st.integers(1, 3), jobs=st.integers(4, 6))
def test_others_get_their_share_beside_a_user_whose_programs_never_report(workers: int, jobs: int) -> None:
    """As many jobs of each user, so that half of the cluster is the share of each."""
    world, until_s = a_world(workers), 600.0
    for index in range(jobs):
        world.submit(10**6, user="ann", **STATED)
        world.submit(10**6, user="mallory", argv=("virtual", "stuck"), kind=f"stuck-{index}", **STATED)
    world.run_until_s(until_s)
    assert all(job.state is not JobState.FAILED for job in world.store.snapshot().jobs.values())
    beyond_s = LIMIT_S + REFILL * until_s + 2 * ROUND_S
    assert held_s(world, "ann") >= (until_s / 2 - beyond_s) * workers
    assert held_s(world, "mallory") >= 0.3 * until_s * workers, "no less than others, but for what was held before"


def test_a_user_alone_is_charged_nothing() -> None:
    world = a_world(1)
    for _ in range(2):
        world.submit(10**6, user="mallory", argv=("virtual", "stuck"), **STATED)
    world.run_until_s(300.0)
    assert all(record.unreported_s == {} for record in world.store.snapshot().round_records)


def test_a_service_of_another_user_waits_for_no_worker_itself() -> None:
    world = a_world(1)
    serving = Serving(port=0, readiness=Check())
    service = ServiceSpec(replicas=0, replicas_min=0, replicas_max=1, min_available=0, serving=serving)
    world.submit(None, user="ann", preemptible=False, service=service)
    for _ in range(2):
        world.submit(10**6, user="mallory", argv=("virtual", "stuck"), **STATED)
    world.run_until_s(300.0)
    assert all(record.unreported_s == {} for record in world.store.snapshot().round_records)


def test_a_kept_gang_that_reports_costs_its_user_nothing() -> None:
    """A start of 25 s, rounds of 10 s: jobs take turns for as long as they like."""
    world = World(cluster=a_cluster_of_nodes(n0="fast"), gang_grace_s=GRACE_S, switch_cost_s=25.0, start_limit_s=40.0)
    for user in ("ann", "bob"):
        world.submit(10**6, user=user, **STATED)
    world.run_until_s(300.0)
    jobs = world.store.snapshot().jobs.values()
    assert all(job.steps_done > 0 and not job.no_progress for job in jobs)
    assert all(record.unreported_s == {} for record in world.store.snapshot().round_records)


def test_the_charge_is_kept_with_the_round_and_outlives_a_restart() -> None:
    world = a_world(1)
    for user in ("ann", "mallory"):
        world.submit(10**6, user=user, argv=("virtual", "mlp" if user == "ann" else "stuck"), **STATED)
    world.run(lambda: "mallory" in world.store.snapshot().round_records[-1].unreported_s, ticks=200)
    before_s = world.store.snapshot().round_records[-1].unreported_s["mallory"]
    world.driver = world.new_driver()
    world.run_until_s(world.clock.now_s() + 30.0)
    after_s = world.store.snapshot().round_records[-1].unreported_s["mallory"]
    assert before_s - REFILL * 40.0 <= after_s <= before_s + 40.0


@pytest.mark.parametrize(
    ("before", "ended", "passed_s", "after"),
    [
        ({}, [("a", 5.0), ("a", 6.0)], 10.0, {"a": 11.0}),
        ({"a": 50.0}, [], 100.0, {"a": 40.0}),
        ({"a": 5.0}, [], 100.0, {}),
        ({"a": 190.0}, [("a", 50.0)], 0.0, {"a": 200.0}),
        ({"a": 50.0, "b": 7.0}, [("b", 1.0), ("c", 2.0)], 10.0, {"a": 49.0, "b": 7.0, "c": 2.0}),
        ({"a": 10.0}, [], 100.0, {}),
        ({"a": 0.5}, [], 0.0, {"a": 0.5}),
        ({"a": 5.0}, [], -10.0, {"a": 5.0}),
        ({}, [("a", 0.0)], 0.0, {}),
    ],
)
def test_time_is_added_at_an_end_and_a_tenth_of_what_passes_is_taken_off(
    before: dict[str, float], ended: list[tuple[str, float]], passed_s: float, after: dict[str, float]
) -> None:
    assert charged(before, ended, passed_s, start_limit_s=100.0) == pytest.approx(after)


def test_a_gang_on_half_of_the_workers_counts_half() -> None:
    assert cluster_s(a_job(spec={"scale_factor": 2}), 100.0, a_cluster(fast=4)) == 50.0


def test_a_gang_counts_no_more_than_the_whole_cluster_also_after_its_nodes_have_gone() -> None:
    assert cluster_s(a_job(spec={"scale_factor": 4}), 100.0, a_cluster(fast=3)) == 100.0
    assert cluster_s(a_job(), 100.0, a_cluster(fast=1)) == cluster_s(a_job(), 100.0, a_cluster()) == 100.0
