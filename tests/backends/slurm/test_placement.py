"""Slurm chooses the nodes, on a real cluster: Gavel says which jobs run, on which type and how many at once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.harness import exit_of, find, gang, is_in, launch, resource, state_of, stop
from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.ports import Instruction, LaunchGang, SetResources
from gavel.types import GangOutcome, GangState, Observation
from tests.backends.clusters import eventually
from tests.backends.slurm.clusters import SlurmHarness, a_service_on
from tests.backends.slurm.conftest import FULL

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

CHOSEN = {
    "a_gang_starts_when_its_resource_is_there",
    "a_gang_may_span_nodes",
    "a_new_service_adopts_what_runs_and_doubles_nothing",
    "a_packed_pair_shares_its_workers_and_nobody_else_does",
}
"""With the counts of every change; all that apply with the full ones."""
CANNOT = {
    *SlurmHarness.cannot,
    "a_lost_node_takes_its_gangs_and_names_along_and_no_others",
    "a_node_that_returns_is_told_again_and_used_again",
}
"""These name the node on which a gang runs."""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[LocalSlurmCluster]:
    """a-0 and a-1 on node-0, a-2 and a-3 on node-1."""
    nodes = [SlurmNodeSpec(name=f"node-{index}", gres={"acc:a": 2}, features=("fast",)) for index in range(2)]
    with LocalSlurmCluster(nodes) as cluster:
        yield cluster


@pytest.fixture
def floating(two_nodes: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHarness]:
    settings = {"chooses_nodes": True, "pending_limit_s": 6.0}
    with a_service_on(two_nodes, tmp_path, monkeypatch, workers=4, **settings) as made:
        yield made


@pytest.fixture
def on_one_node(one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHarness]:
    with a_service_on(one_node, tmp_path, monkeypatch, chooses_nodes=True) as made:
        yield made


def planned(harness: SlurmHarness, job_id: str, *workers: str, lasts_s: float = 600) -> list[Instruction]:
    """A gang on these workers, with its resource on each of their nodes as they are seen now."""
    seen = harness.backend.observe()
    node_of = {worker.id: worker.node for worker in seen.cluster.workers}
    (one,) = resource(harness, f"gang-{job_id}-1", lasts_s=lasts_s + harness.grace_s).resources
    nodes = [node_of[worker] for worker in workers]
    own = SetResources(resources=tuple(replace(one, node=node, capacity=nodes.count(node)) for node in {*nodes}))
    return [own, launch(harness, job_id, *workers, lasts_s=lasts_s)]


def nodes_of(seen: Observation, job_id: str) -> list[str]:
    """The node of each worker of a gang, as it is observed."""
    node_of = {worker.id: worker.node for worker in seen.cluster.workers}
    each = find(seen, job_id)
    return [node_of[worker] for worker in each.worker_ids] if each is not None else []


def foreign(harness: SlurmHarness, node: str, units: int = 2, name: str = "foreign") -> None:
    """Another user's job, at once."""
    options = ["--gres", f"acc:a:{units}", "-w", node, "-o", "/dev/null", f"--job-name={name}"]
    harness.cluster.run("sbatch", *options, "--wrap", "sleep 600")
    running = ["squeue", "-h", "-t", "R", "-o", "%j"]
    eventually(lambda: name in harness.cluster.run(*running).split())


@pytest.fixture
def elsewhere(floating: SlurmHarness) -> SlurmHarness:
    """A gang of two was planned on node-0, which somebody else's job took before: Slurm gave it node-1."""
    instructions = planned(floating, "j1", "a-0", "a-1")
    foreign(floating, "node-0")
    floating.backend.execute(instructions)
    floating.wait_until(is_in(GangState.RUNNING, "j1"))
    return floating


def test_a_gang_runs_where_slurm_puts_it_and_is_observed_there(elsewhere: SlurmHarness) -> None:
    """1 no node was asked for, 2 workers keep their names and are seen on node-1, with the resource, 3 it ends."""
    (job,) = [each.split()[0] for each in elsewhere.jobs() if "gavel" in each]
    shown = elsewhere.cluster.run("scontrol", "show", "job", job)
    assert "ReqNodeList=(null)" in shown and "NodeList=node-1" in shown
    seen = elsewhere.backend.observe()
    assert nodes_of(seen, "j1") == ["node-1", "node-1"]
    assert {each.node for each in seen.resources if each.name == "gang-j1-1" and each.capacity} == {"node-1"}
    assert elsewhere.processes_on("node-1") and not elsewhere.processes_on("node-0")
    elsewhere.wait_until(lambda view: [worker.id for worker in view.cluster.workers] == ["a-0", "a-1"])
    elsewhere.backend.execute(stop("j1"))
    assert exit_of(elsewhere, "j1").outcome is GangOutcome.PREEMPTED


def test_the_next_service_adopts_a_gang_where_it_is(elsewhere: SlurmHarness) -> None:
    before, jobs = elsewhere.all_processes(), elsewhere.jobs()
    elsewhere.workers = 2
    elsewhere.crash()
    elsewhere.recover()
    seen = elsewhere.wait_until(is_in(GangState.RUNNING, "j1"))
    assert nodes_of(seen, "j1") == ["node-1", "node-1"]
    assert (elsewhere.all_processes(), elsewhere.jobs()) == (before, jobs)
    elsewhere.backend.execute(stop("j1"))
    assert exit_of(elsewhere, "j1").outcome is GangOutcome.PREEMPTED


def test_a_service_that_lost_its_folder_finds_the_gang_where_it_is(elsewhere: SlurmHarness) -> None:
    before = elsewhere.all_processes()
    elsewhere.workers = 2
    elsewhere.crash()
    elsewhere.backend = elsewhere.open(state_dir=elsewhere.folder / "another")
    seen = elsewhere.wait_until(lambda view: is_in(GangState.RUNNING, "j1")(view) and bool(nodes_of(view, "j1")))
    elsewhere.wait_until(lambda view: nodes_of(view, "j1") == ["node-1", "node-1"])
    assert find(seen, "j1") is not None and elsewhere.all_processes() == before


def test_a_gang_over_nodes_with_different_numbers_of_ranks_has_a_node_for_each(floating: SlurmHarness) -> None:
    """Three ranks, two of them on one node: the second job of Slurm's is not given the node of the first."""
    floating.backend.execute(planned(floating, "j1", "a-0", "a-1", "a-2"))
    seen = floating.wait_until(is_in(GangState.RUNNING, "j1"))
    assert sorted(map(nodes_of(seen, "j1").count, ("node-0", "node-1"))) == [1, 2]
    floating.backend.execute(planned(floating, "j2", "a-3"))
    floating.wait_until(is_in(GangState.RUNNING, "j1", "j2"))


def test_a_gang_that_slurm_does_not_start_is_cancelled_and_tried_again(floating: SlurmHarness) -> None:
    """1 others have all places, 2 nothing of the gang is left in Slurm's queue, its reason is kept, 3 it runs later."""
    instructions = planned(floating, "j1", "a-0", "a-1")
    for node in ("node-0", "node-1"):
        foreign(floating, node)
    floating.backend.execute(instructions)
    text = "an allocation did not start there within"
    seen = floating.wait_until(lambda view: text in getattr(find(view, "j1"), "waiting_for", ""))
    assert "(Slurm: Resources)" in getattr(find(seen, "j1"), "waiting_for", "")
    eventually(lambda: bool(floating.backend.observe()) and not any("gavel" in each for each in floating.jobs()))
    floating.cluster.run("scancel", "--name=foreign")
    floating.wait_until(is_in(GangState.RUNNING, "j1"), 120)


def test_two_gangs_that_were_planned_on_each_others_nodes_both_run(floating: SlurmHarness) -> None:
    """Four workers, four ranks: whichever node Slurm gives to which gang, both run and no worker is lost."""
    floating.backend.execute(planned(floating, "j1", "a-2", "a-3"))
    floating.backend.execute(planned(floating, "j2", "a-0", "a-1"))
    seen = floating.wait_until(is_in(GangState.RUNNING, "j1", "j2"))
    assert {*nodes_of(seen, "j1")} | {*nodes_of(seen, "j2")} == {"node-0", "node-1"}
    assert sorted(worker.id for worker in seen.cluster.workers) == ["a-0", "a-1", "a-2", "a-3"]


def test_a_type_that_a_feature_names_is_asked_for_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 of two nodes with the same resource one has the feature, 2 the gang of that type runs there."""
    nodes = [
        SlurmNodeSpec(name="node-0", gres={"acc": 1}, features=("slow",)),
        SlurmNodeSpec(name="node-1", gres={"acc": 1}, features=("fast",)),
    ]
    settings = {"chooses_nodes": True, "type_features": ("fast", "slow")}
    with (
        LocalSlurmCluster(nodes) as cluster,
        a_service_on(cluster, tmp_path, monkeypatch, workers=2, **settings) as harness,
    ):
        *_, start = gang(harness, "j1", "fast-0")
        assert isinstance(start, LaunchGang)
        own = resource(harness, "gang-j1-1").resources[0]
        there = SetResources(resources=(replace(own, node="node-1"),))
        harness.backend.execute([there, replace(start, accelerator_type="fast")])
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        (job,) = harness.jobs()
        shown = harness.cluster.run("scontrol", "show", "job", job.split()[0])
        assert "Features=fast" in shown and "NodeList=node-1" in shown
        assert state_of(harness, "j1") is GangState.RUNNING


@pytest.mark.parametrize(
    "check",
    [each for each in CHECKS if each.__name__ not in CANNOT and (FULL or each.__name__ in CHOSEN)],
    ids=lambda check: check.__name__,
)
def test_it_conforms(check: Check, on_one_node: SlurmHarness) -> None:
    check(on_one_node)
