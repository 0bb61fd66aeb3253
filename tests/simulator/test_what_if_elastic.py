"""What-if questions about states with elastic jobs: their sizes change as the service changes them."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.ports import ThroughputEstimate, ThroughputSource
from gavel.simulator.live import Live
from gavel.simulator.what_if import AddedNodes
from gavel.types import InfeasibleType, Job, JobState
from gavel.types.execution_plans import ExecutionPlan
from tests.builders import a_cluster, a_job
from tests.mechanism.world import World
from tests.simulator.live import live_state_of
from tests.simulator.test_what_if import NOW_S, live, tried

SPEED = {1: 10.0, 2: 18.0, 4: 30.0}


def measured(kind: str, factor: float = 1.0) -> list[ThroughputEstimate]:
    """The kind was measured on the type `fast` in each size."""
    return [
        ThroughputEstimate(
            kind=kind,
            scale_factor=size,
            accelerator_type="fast",
            steps_per_s=factor * speed,
            relative_error=0.01,
            source=ThroughputSource.MEASURED,
            measurements=9,
        )
        for size, speed in SPEED.items()
    ]


def an_elastic_job(name: str = "e", **spec: Any) -> Job:
    fields = {"kind": "ann/x", "tier": "gold", "total_steps": 3000, "cpu_cores": 0, "scale_factor": 1}
    return a_job(name, spec=fields | {"sizes": (1, 2, 4), "global_batch": 64} | spec, submitted_at_s=1.0)


def a_state(*jobs: Job, fast: int = 4, **over: Any) -> Live:
    fields: dict[str, Any] = {"throughputs": tuple(measured("ann/x")), "policy": "rank_weighted_speed"} | over
    return live(jobs=jobs, cluster=a_cluster(fast=fast), **fields)


def left_s(outcome: Any, job_id: str = "e") -> float:
    job = outcome.jobs[job_id]
    assert job.finish_at_s is not None and job.is_simulated
    return float(job.finish_at_s - NOW_S)


def test_a_job_alone_has_the_size_in_which_it_is_fastest() -> None:
    assert left_s(tried(a_state(an_elastic_job())).before) == pytest.approx(100.0)


def test_more_nodes_let_a_job_grow() -> None:
    result = tried(
        a_state(an_elastic_job(), fast=1), nodes_added=(AddedNodes(count=3, accelerator_type="fast", workers=1),)
    )
    assert left_s(result.before) == pytest.approx(300.0) and left_s(result.after) == pytest.approx(100.0)


def test_a_job_grows_when_another_one_ends() -> None:
    """Two jobs share two workers until the short one ends: then the long one has both."""
    short = an_elastic_job("short", total_steps=500)
    outcome = tried(a_state(short, an_elastic_job(), fast=2)).before
    assert left_s(outcome, "short") < 60.0
    assert 3000 / 18.0 < left_s(outcome) < 300.0


def test_a_size_in_which_the_kind_is_known_not_to_fit_is_not_taken() -> None:
    seen: dict[str, Any] = {"evidence": "out of memory", "job_id": "earlier", "at_s": 0.0, "accelerator_type": "fast"}
    user = an_elastic_job().spec.user
    marks = [InfeasibleType(user=user, kind="ann/x", scale_factor=size, **seen) for size in (2, 4)]
    assert left_s(tried(a_state(an_elastic_job(), infeasible=marks)).before) == pytest.approx(300.0)


def test_a_job_has_the_fastest_of_its_plans() -> None:
    plans = tuple(ExecutionPlan(name=f"way={way}", kind=f"ann/x[way={way}]", sizes=(1, 2, 4)) for way in (1, 2))
    job = an_elastic_job(plans=plans, plan="way=1", kind="ann/x[way=1]")
    both = measured("ann/x[way=1]") + measured("ann/x[way=2]", 2.0)
    assert left_s(tried(a_state(job, throughputs=tuple(both))).before) == pytest.approx(50.0, abs=2.0)


def test_rigid_jobs_beside_elastic_ones_keep_their_size() -> None:
    rigid = replace(an_elastic_job("r"), spec=replace(an_elastic_job().spec, sizes=(), global_batch=0, scale_factor=2))
    outcome = tried(a_state(rigid, an_elastic_job())).before
    assert left_s(outcome, "r") >= 3000 / 18.0 - 1.0


def test_the_forecast_of_a_live_state_is_near_what_the_service_then_does() -> None:
    """A virtual cluster under the production driver, asked once speeds were measured, held against its own end."""
    rates = {("ann/x", size, "fast"): speed for size, speed in SPEED.items()}
    world = World(cluster=a_cluster(fast=4), rates=rates, round_duration_s=5.0)
    elastic = {"kind": "ann/x", "argv": ("virtual", "ann/x"), "sizes": (1, 2, 4), "global_batch": 64}
    ids = [world.submit(total_steps=1000 + 400 * index, scale_factor=1, **elastic) for index in range(4)]
    world.run(lambda: world.clock.now_s() >= 60.0)
    state, now_s = live_state_of(world), world.clock.now_s()
    outcome = tried(state).before.jobs
    world.run(lambda: all(world.store.job(job_id).state is JobState.COMPLETED for job_id in ids))
    assert outcome
    for job_id, job in outcome.items():
        ended_s = world.store.job(job_id).finished_at_s
        assert ended_s and job.finish_at_s
        assert abs(job.finish_at_s - ended_s) <= 0.35 * (ended_s - now_s) + 3 * world.settings.round_duration_s
