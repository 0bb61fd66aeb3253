"""The service's jobs, written as a trace and read again, lead to the decisions that they lead to in the service."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.client import Client
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.problem import problem_from, schedulable
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.lean import LeanWorld
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import Workload, survey
from gavel.types import AllocationProblem, Cluster, Job, JobSpec, Node, Scope, Tier, Worker
from tests.api.conftest import Service, serve
from workloads.traces.history import surroundings
from workloads.traces.job import TraceJob

KINDS, SIZES, TYPES = ("ann/mlp", "ann/conv"), (1, 2), ("a100", "t4")
RATES = {
    (kind, size, name): 2.0 * size + len(kind) * (name == "a100") for kind in KINDS for size in SIZES for name in TYPES
}
NOT_DECIDED_BY = {"argv", "env", "labels", "array_id", "array_index"}
OF_THEIR_OWN = {"after", "throughput_steps_per_s", "deadline_at_s"}
CLUSTER = Cluster(
    nodes=tuple(Node(name=f"n{index}", cpu_cores=8 + index, memory_bytes=(64 + index) << 30) for index in range(3)),
    workers=tuple(
        Worker(id=f"w{index}", node=f"n{index // 2}", accelerator_type=name, price_usd_per_hour=price)
        for index, (name, price) in enumerate([("a100", 3.0)] * 2 + [("t4", 0.5)] * 4)
    ),
)
TIERS = (
    Tier(name="gold", weight=2.0, guarantee=0.3, objective="fifo", default_priority=3),
    Tier(name="silver", cap=0.6, objective="deadline"),
    Tier(name="lab", parent="silver", weight=3.0),
)
SUBMITTED: tuple[dict[str, Any], ...] = (
    {"kind": "ann/mlp", "total_steps": 500, "tier": "gold", "priority": 2, "weight": 3.0, "cpu_cores": 4},
    {"kind": "ann/conv", "total_steps": 900, "tier": "silver", "scale_factor": 2, "memory_bytes": 5 << 30},
    {"kind": "ann/conv", "total_steps": 300, "tier": "lab", "cpu_cores": 2, "preemptible": False, "priority": -1},
    {"kind": "ann/mlp", "total_steps": 700, "tier": "silver", "max_retries": 3, "name": "fourth"},
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Job], Path]:
    """The jobs of a service as its store has them, and the file that its history was exported to."""
    tmp_path = tmp_path_factory.mktemp("service")
    with_service = serve(tmp_path, cluster=CLUSTER)
    service: Service = next(with_service)
    versions = {tier.name: tier.version for tier in service.store.tiers()}
    for tier in TIERS:
        service.store.put_tier(tier, expected_version=versions.get(tier.name), by="test", now_s=0.0)
    token = service.token("ann", Scope.OPERATOR)
    with Client(service.url, token) as client:
        ids = [client.submit(argv=["true"], **job)["id"] for job in SUBMITTED]
        deadline_at_s = client.job(ids[0])["submitted_at_s"] + 86_400.0
        last: dict[str, Any] = {"kind": "ann/mlp", "total_steps": 40, "tier": "gold", "after": [ids[1]]}
        client.submit(argv=["true"], deadline_at_s=deadline_at_s, **last)
    path = tmp_path / "history.jsonl"
    result = CliRunner().invoke(app, ["export-trace", str(path)], env={"GAVEL_URL": service.url, "GAVEL_TOKEN": token})
    assert result.exit_code == 0, result.output
    jobs = sorted(service.store.snapshot().jobs.values(), key=lambda job: job.id)
    for _ in with_service:
        pass
    return jobs, path


def traced(path: Path) -> list[TraceJob]:
    return list(Workload(text=str(path)).jobs())


def test_all_that_a_decision_reads_of_a_job_is_in_the_trace(exported: tuple[list[Job], Path]) -> None:
    jobs, path = exported
    read = traced(path)
    assert [job.id for job in read] == [job.id for job in jobs]
    for job, back in zip(jobs, read, strict=True):
        kept = {each.name for each in fields(JobSpec)} - NOT_DECIDED_BY - OF_THEIR_OWN
        assert {name: getattr(back.spec, name) for name in kept} == {name: getattr(job.spec, name) for name in kept}
        assert back.spec.after == job.spec.after
    assert read[-1].spec.deadline_at_s == pytest.approx(86_400.0, abs=0.01)
    recorded = surroundings(path)
    assert recorded.cluster == CLUSTER
    assert [replace(tier, version=1) for tier in recorded.tiers if tier.name != "default"] == [
        replace(tier, version=1) for tier in sorted(TIERS, key=lambda tier: tier.name)
    ]
    assert survey(Workload(text=str(path)), None).needs_driver  # one waits for another


def scenario_of(path: Path, policy: str) -> Scenario:
    recorded = surroundings(path)
    assert recorded.cluster is not None
    settings = Settings(policy=policy, round_duration_s=10.0, planning_lead_fraction=0.0)
    return Scenario(
        cluster=recorded.cluster, throughput=RATES, settings=settings, tiers=recorded.tiers, needs_driver=True
    )


class Asked(InlineRunner):
    """Keeps the problems that it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[AllocationProblem] = []

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float):  # noqa: ANN201
        self.problems.append(problem)
        return super().allocate(policy, problem, time_limit_s)


@pytest.mark.parametrize("world", [LeanWorld, DrivenWorld])
@pytest.mark.parametrize("policy", [info.name for info in registry.available()])
def test_the_first_round_of_the_trace_is_decided_as_in_the_service(
    exported: tuple[list[Job], Path], policy: str, world: type[LeanWorld | DrivenWorld]
) -> None:
    """All jobs but the one that waits for another arrive at once; the lean simulation has no such waiting."""
    jobs, path = exported
    start_s = jobs[0].submitted_at_s
    at_once = [replace(job, submitted_at_s=0.0) for job in jobs if not job.waits_for]
    expected = problem_from(
        schedulable(at_once, 0.0),
        feasibility=Feasibility(CLUSTER),
        tiers={tier.name: tier for tier in (*TIERS, Tier(name="default"))},
        matrix=OracleThroughputs(RATES).matrix,
        now_s=0.0,
        round_duration_s=10.0,
        pair_rates=None,
        warm_start={},
    )
    read = [replace(job, submitted_at_s=0.0) for job in traced(path) if not job.spec.after]
    next(iter(world(read, scenario_of(path, policy), runner := Asked()).rounds()))
    for name in {each.name for each in fields(expected)} - {"job_ids", "tiers", "tier_of_job"}:
        got, wanted = getattr(runner.problems[0], name), getattr(expected, name)
        assert np.array_equal(got, wanted) if isinstance(wanted, np.ndarray) else got == wanted, name
    ours, theirs = (InlineRunner().allocate(policy, each, 5.0) for each in (runner.problems[0], expected))
    assert np.array_equal(ours.time_fraction, theirs.time_fraction)
    assert start_s > 0


def test_a_job_of_the_trace_waits_for_the_ones_that_it_waited_for(exported: tuple[list[Job], Path]) -> None:
    _, path = exported
    world = DrivenWorld(traced(path), scenario_of(path, "hierarchical"), InlineRunner())
    for _ in world.rounds():
        pass
    rows = list(world.result().rows)
    began_s = rows[-1].finished_at_s - rows[-1].fastest_s  # type: ignore[operator]
    assert began_s >= rows[1].finished_at_s - 1e-3  # type: ignore[operator]


def test_a_job_that_waits_for_one_that_never_came_is_refused(exported: tuple[list[Job], Path]) -> None:
    _, path = exported
    world = DrivenWorld(traced(path)[2:], scenario_of(path, "fifo"), InlineRunner())
    with pytest.raises(InvalidRequest, match=r"waits for .*, which is not before it"):
        for _ in world.rounds():
            pass
