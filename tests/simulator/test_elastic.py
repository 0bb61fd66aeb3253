"""Elastic jobs in a simulation: drawn, written and read again, and run by the whole service."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.setup import Workload, cluster_of, rates, survey
from gavel.types import JobSpec
from gavel.types.execution_plans import ExecutionPlan
from tests.simulator.test_exported import traced
from workloads.traces import generators
from workloads.traces.history import Surroundings, lines_of, written
from workloads.traces.job import TraceJob
from workloads.traces.throughputs import ThroughputTable

SPEEDS = {"v100": 4.0, "k80": 1.0}
TABLE = ThroughputTable(
    rates={
        (kind, size, name): rate * size**0.8
        for kind in generators.KINDS
        for size in ((1,) if kind in ("A3C", "CycleGAN") else (1, 2, 4, 8))
        for name, rate in SPEEDS.items()
    }
)


def drawn(text: str) -> list[TraceJob]:
    return list(Workload(text=text, table=TABLE).jobs())


def ran(text: str) -> SimulationOutcome:
    workload = Workload(text=text, table=TABLE)
    seen = survey(workload, None)
    settings = Settings(policy="max_min_fairness", round_duration_s=3600.0)
    scenario = Scenario(
        cluster=cluster_of("v100:8,k80:8"),
        throughput=rates(seen, TABLE),
        settings=settings,
        is_elastic=seen.is_elastic,
        switch_cost_s={"": 10.0},
    )
    assert scenario.needs_service is text.endswith("elastic=true")
    world = DrivenWorld(workload.jobs(), scenario, InlineRunner())
    for _ in world.rounds():
        pass
    return world.result()


def test_an_elastic_job_takes_as_long_as_the_rigid_one_at_its_size() -> None:
    """Its sizes are those at which the table has its global batch, and steps are counted by that."""
    text = "published?jobs=200&per_hour=5&gangs=true"
    elastic = 0
    for rigid, job in zip(drawn(text), drawn(f"{text}&elastic=true"), strict=True):
        if not job.spec.is_elastic:
            assert job == rigid
            continue
        elastic += 1
        size, batch = rigid.spec.scale_factor, int(rigid.spec.kind.partition("(batch size ")[2].rstrip(")"))
        assert job.spec.global_batch == size * batch and job.spec.scale_factor == min(job.spec.sizes)
        assert size in job.spec.sizes and set(job.steps_per_s) == set(job.spec.sizes)
        alone_s = rigid.total_steps / TABLE.rates[rigid.spec.kind, size, "v100"]
        assert job.total_steps / job.steps_per_s[size]["v100"] == pytest.approx(alone_s, rel=0.05, abs=2.0)
    assert 50 < elastic < 200


def test_elastic_jobs_are_written_and_read_again(tmp_path: Path) -> None:
    jobs = drawn("published?jobs=30&per_hour=5&gangs=true&elastic=true")
    path = tmp_path / "history.jsonl"
    path.write_text("".join(lines_of(jobs, Surroundings())))
    for job, back in zip(jobs, traced(path), strict=True):
        assert (back.spec.sizes, back.spec.global_batch, back.steps_per_s) == (
            job.spec.sizes,
            job.spec.global_batch,
            job.steps_per_s,
        )
        assert (back.spec.kind, back.spec.scale_factor) == (job.spec.kind, job.spec.scale_factor)


def test_an_exported_job_has_its_speeds_by_size_and_begins_with_the_smallest(tmp_path: Path) -> None:
    """A size that nobody knows the speed of is not taken in a simulation."""
    fields = {"name": "a", "user": "ann", "tier": "default", "weight": 1.0, "priority": 0, "preemptible": True}
    needs: dict[str, Any] = {"cpu_cores": 1, "memory_bytes": 0, "accelerator_types": [], "accelerator_memory_bytes": 0}
    rest: dict[str, Any] = {"node_labels": {}, "regions": [], "data_region": "", "data_bytes": 0, "max_retries": 0}
    sizes = {"scale_factor": 4, "sizes": [1, 2, 4], "global_batch": 64, "max_global_batch": None}
    times: dict[str, Any] = {
        "submitted_at_s": 5.0,
        "deadline_at_s": None,
        "total_steps": 50,
        "steps_done": 9,
        "after": [],
    }
    job = {
        "id": "j1",
        "kind": (kind := "ann/net-global-batch-64"),
        "plans": [],
        **fields,
        **needs,
        **rest,
        **sizes,
        **times,
    }
    path = tmp_path / "history.jsonl"
    by_size = {1: {"v100": 2.0}, 2: {"v100": 3.5}, 4: {}}
    path.write_text("".join(written([job], {"j1": {kind: by_size}}, {"nodes": [], "workers": []}, [])))
    (back,) = traced(path)
    assert (back.spec.sizes, back.spec.scale_factor, back.steps_per_s) == ((1, 2, 4), 1, by_size)
    seen = survey(Workload(text=str(path)), None)
    assert seen.is_elastic and (back.spec.kind, 4, "v100") not in rates(seen, None)


WAYS = (
    ExecutionPlan(name="data=1", kind="ann/lm[data=1]-global-batch-64", parameters={"data": 1}, sizes=(1, 2)),
    ExecutionPlan(
        name="tensor=2",
        kind="ann/lm[tensor=2]-global-batch-64",
        parameters={"tensor": 2},
        sizes=(2,),
        accelerator_types=("v100",),
        accelerator_memory_bytes=5,
    ),
)
SPEED_OF_WAYS = {"data=1": {1: {"v100": 2.0}, 2: {"v100": 3.0}}, "tensor=2": {2: {"v100": 5.0}}}


def a_job_with_plans(steps: int = 1000) -> TraceJob:
    elastic: dict[str, Any] = {"sizes": (1, 2), "global_batch": 64, "plans": WAYS, "plan": "data=1"}
    spec = JobSpec(argv=(), kind=WAYS[0].kind, tier="default", user="ann", total_steps=steps, cpu_cores=0, **elastic)
    return TraceJob(submitted_at_s=0.0, spec=spec, id="j", plan_steps_per_s=SPEED_OF_WAYS)


def test_execution_plans_are_written_and_read_again_with_their_speeds(tmp_path: Path) -> None:
    path, job = tmp_path / "history.jsonl", a_job_with_plans()
    path.write_text("".join(lines_of([job], Surroundings())))
    (back,) = traced(path)
    assert (back.spec.plans, back.spec.plan, back.spec.kind) == (WAYS, "data=1", WAYS[0].kind)
    assert (back.plan_steps_per_s, back.speeds) == (SPEED_OF_WAYS, job.speeds)
    assert "".join(lines_of([back], Surroundings())) == path.read_text()
    seen = survey(Workload(text=str(path)), None)
    assert seen.is_elastic and rates(seen, None) == job.speeds


def test_a_plan_without_a_size_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(lines_of([a_job_with_plans()], Surroundings())).replace('"sizes": [2]', '"sizes": [0]'))
    with pytest.raises(InvalidRequest, match="line 1: sizes"):
        traced(path)


@pytest.mark.parametrize(("workers", "plan", "speed"), [(1, "data=1", 2.0), (2, "tensor=2", 5.0)])
def test_a_simulation_chooses_among_plans_as_the_service_does(workers: int, plan: str, speed: float) -> None:
    """On two workers the second plan is the fastest; on one the first is the only one that holds."""
    job = a_job_with_plans()
    spec = replace(job.spec, plans=(WAYS[0], replace(WAYS[1], accelerator_memory_bytes=0)))
    settings = Settings(policy="max_min_fairness", round_duration_s=10.0)
    cluster = cluster_of(f"v100:{workers}")
    scenario = Scenario(cluster=cluster, throughput=job.speeds, settings=settings, is_elastic=True)
    world = DrivenWorld([replace(job, spec=spec)], scenario, InlineRunner())
    for _ in world.rounds():
        pass
    (ended,), (row,) = world.jobs(), world.result().rows
    assert (ended.plan, ended.size) == (plan, workers)
    assert row.jct_s == pytest.approx(1000 / speed, rel=0.01)
    assert row.fastest_s is not None and row.fastest_s <= 1000 / speed + 1e-6


def test_elastic_jobs_end_sooner_than_the_same_rigid_ones() -> None:
    text = "published?jobs=8&per_hour=2&gangs=true"
    rigid, elastic = ran(text), ran(f"{text}&elastic=true")
    mean_s = [sum(row.jct_s or 0.0 for row in each.rows) / len(each.rows) for each in (rigid, elastic)]
    assert len(elastic.rows) == 8 and mean_s[1] < 0.9 * mean_s[0]
    assert all(row.jct_s is not None and row.fastest_s is not None for row in elastic.rows)
    assert all((row.jct_s or 0.0) >= 0.99 * (row.fastest_s or 0.0) for row in elastic.rows)
