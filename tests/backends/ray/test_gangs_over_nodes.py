"""Gangs with ranks on several nodes of a Ray cluster."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, find, is_in, resource
from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.backends.utilization import read_utilization
from gavel.ports import Instruction, KeepCheckpoint, LaunchGang, SetResources, StopGang
from gavel.types import GangOutcome, GangState, Observation, Report, ReportKind
from tests.backends.ray.clusters import RayHarness, a_service_on

pytestmark = pytest.mark.ray

PROGRAMS = Path(__file__).with_name("programs.py")
ISOLATED = (sys.executable, "-I", "-S", str(PROGRAMS))
TORCH = """
import os, torch.distributed as dist, torch
dist.init_process_group("gloo")
mine = torch.tensor([float(dist.get_rank() + 1) ** 2])
dist.all_reduce(mine)
print(f"sum {int(mine.item())} of {dist.get_world_size()}")
"""


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[LocalRayCluster]:
    """Three nodes with two workers each."""
    nodes = [NodeSpec(name=f"node-{index}", resources={"gavel:a": 2}) for index in range(3)]
    with LocalRayCluster(nodes) as cluster:
        yield cluster


@pytest.fixture
def spread(three_nodes: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHarness]:
    """A service on the three nodes: worker a-0 and a-1 on the first, and so on."""
    with a_service_on(three_nodes, tmp_path, monkeypatch, workers=6) as made:
        yield made


def test_ranks_are_sampled_on_every_node(spread: RayHarness) -> None:
    """The first sample comes two seconds after the start, and an instant of each node has a line."""
    log = spread.state_dir / "logs" / "j1.log"
    spread.backend.execute(gang(spread, ("sleep", "60"), ("a-0", "a-2", "a-3")))
    spread.wait_until(lambda _: {each.rank for each in read_utilization(log)} == {0, 1, 2})
    assert all(each.memory_bytes > 0 and each.generation == 1 for each in read_utilization(log))


def gang(
    harness: RayHarness, argv: tuple[str, ...], workers: tuple[str, ...], generation: int = 1, **over: object
) -> list[Instruction]:
    """A job `j1` on these workers."""
    nodes = {worker.id: worker.node for worker in harness.backend.observe().cluster.workers}
    given = {
        "job_id": "j1",
        "generation": generation,
        "user": "ann",
        "argv": argv,
        "env": {},
        "accelerator_type": "a",
        "worker_ids": workers,
        "resource": f"gavel/gang-j1-{generation}",
        "lease_expires_at_s": harness.now_s() + 60,
        "start_step": 0,
        "total_steps": 1000,
        "checkpoint": None,
    }
    named = resource(harness, f"gang-j1-{generation}", generation=generation).resources[0]
    resources = [
        replace(named, node=node, capacity=sum(nodes[worker] == node for worker in workers))
        for node in sorted({nodes[worker] for worker in workers})
    ]
    return [SetResources(resources=tuple(resources)), LaunchGang(**{**given, **over})]  # type: ignore[arg-type]


def log_lines(harness: RayHarness) -> list[str]:
    return sorted(harness.backend.read_log("j1")[0].decode().splitlines())


def test_ranks_on_three_nodes_reduce_over_sockets(spread: RayHarness) -> None:
    """MASTER_ADDR and MASTER_PORT lead every rank to rank 0; their output meets in one log."""
    workers = ("a-0", "a-1", "a-2", "a-4", "a-5")
    spread.backend.execute(gang(spread, (*ISOLATED, "all-reduce"), workers))
    end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    places = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 2, 0), (4, 2, 1)]
    expected = [f"[{rank}] sum 55 on node rank {node} local rank {local}" for rank, node, local in places]
    assert log_lines(spread) == expected


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra [torch])")
def test_ranks_on_two_nodes_reduce_with_torch_gloo(spread: RayHarness) -> None:
    spread.backend.execute(gang(spread, (sys.executable, "-c", TORCH), ("a-0", "a-2")))
    end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert log_lines(spread) == ["[0] sum 5 of 2", "[1] sum 5 of 2"]


def test_a_gang_that_moves_goes_on_from_its_checkpoint_on_other_nodes(spread: RayHarness) -> None:
    """1 two nodes train, 2 stop, 3 the accepted checkpoint is restored on two others, 4 no step is lost or doubled."""
    argv = (sys.executable, str(PROGRAMS.with_name("training.py")))
    reports: list[Report] = []

    def has_checkpoint(seen: Observation) -> bool:
        reports.extend(report for each in seen.gangs for report in each.reports)
        return any(report.kind is ReportKind.CHECKPOINT for report in reports)

    spread.backend.execute(gang(spread, argv, ("a-0", "a-2"), total_steps=100_000))
    spread.wait_until(has_checkpoint)
    spread.backend.execute([StopGang(job_id="j1", generation=1)])
    ended = spread.wait_until(lambda seen: has_checkpoint(seen) and is_in(GangState.ENDED, "j1")(seen))
    status = find(ended, "j1")
    assert status is not None and status.exit is not None
    assert status.exit.outcome is GangOutcome.PREEMPTED
    last = max((each for each in reports if each.checkpoint), key=lambda each: each.step)
    assert last.checkpoint is not None
    again = gang(
        spread,
        argv,
        ("a-3", "a-5"),
        generation=2,
        start_step=last.step,
        total_steps=last.step + 10,
        checkpoint=last.checkpoint,
    )
    spread.backend.execute([KeepCheckpoint(job_id="j1", checkpoint=last.checkpoint), *again])
    end = exit_of(spread, "j1", generation=2)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert f"[0] counted to {last.step + 10}" in log_lines(spread)


def test_a_rank_that_fails_on_one_node_ends_the_others(spread: RayHarness) -> None:
    fails = 'if [ $RANK = 1 ]; then sleep 0.2; exit 9; fi; exec "$@"'
    spread.backend.execute(gang(spread, ("sh", "-c", fails, "sh", *ISOLATED, "trains"), ("a-0", "a-2", "a-4")))
    end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code, end.message) == (GangOutcome.EXITED, 9, "rank 1 ended with exit code 9")
    assert spread.processes() == 0
