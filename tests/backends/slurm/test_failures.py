"""Failures on a real Slurm cluster: its controller, nodes, other people's jobs, and the service itself."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, find, gang, is_in, spread_gang, state_of, stop
from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.errors import BackendUnavailable
from gavel.ports import Instruction, LaunchGang
from gavel.types import GangOutcome, GangState, Observation
from tests.backends.clusters import eventually, tolerant
from tests.backends.slurm.clusters import SlurmHarness, a_service_on

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]


@pytest.fixture
def running(slurm_harness: SlurmHarness) -> SlurmHarness:
    """A gang of two runs."""
    slurm_harness.backend.execute(gang(slurm_harness, "pair", "a-0", "a-1", lasts_s=240))
    slurm_harness.wait_until(is_in(GangState.RUNNING, "pair"))
    return slurm_harness


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHarness]:
    """The harness on a cluster of its own, of two nodes, with which a test may do anything."""
    nodes = [SlurmNodeSpec(name=f"node-{index}", gres={"acc:a": 1}) for index in range(2)]
    with LocalSlurmCluster(nodes) as cluster, a_service_on(cluster, tmp_path, monkeypatch, workers=2) as made:
        yield made


def lasting(instruction: Instruction) -> Instruction:
    """With a lease that no test outlasts."""
    if isinstance(instruction, LaunchGang):
        return replace(instruction, lease_expires_at_s=instruction.lease_expires_at_s + 600)
    return instruction


def test_a_gang_is_one_allocation_that_slurm_lists(two_nodes: SlurmHarness) -> None:
    """1 a gang of two nodes is one job of Slurm's, 2 which goes with it."""
    two_nodes.backend.execute(spread_gang(two_nodes, "j1", 0, 1))
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    (job,) = two_nodes.jobs()
    assert job.split()[1:] == ["gavel/j1/1", "RUNNING"]
    assert two_nodes.cluster.run("squeue", "-h", "-o", "%D %b %N").split() == ["2", "gres:acc:a:1", "node-[0-1]"]
    two_nodes.backend.execute(stop("j1"))
    assert exit_of(two_nodes, "j1").outcome is GangOutcome.PREEMPTED
    eventually(lambda: not two_nodes.backend.observe() or not two_nodes.jobs())


def test_a_restarted_controller_costs_no_gang(two_nodes: SlurmHarness) -> None:
    """1 it is killed under a gang, 2 the operator is told, the gang goes on, 3 it is back, and gangs start."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    before = two_nodes.all_processes()
    two_nodes.cluster.stop_controller()
    eventually(tolerant(two_nodes, lambda _: any("does not answer" in each for each in two_nodes.backend.notes())), 90)
    assert is_in(GangState.RUNNING, "j1")(two_nodes.backend.observe())
    two_nodes.cluster.start_controller()
    eventually(tolerant(two_nodes, lambda _: not two_nodes.backend.notes()), 60)
    assert two_nodes.all_processes() == before
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j2", 1)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j2"), 120)


def test_a_gang_whose_node_dies_is_lost_and_its_allocation_goes(two_nodes: SlurmHarness) -> None:
    """1 power of one of its nodes is cut, 2 the gang is lost, 3 the other node is free again."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0, 1)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    two_nodes.lose_node("node-0")
    seen = two_nodes.wait_until(is_in(GangState.ENDED, "j1"), 120)
    ended = find(seen, "j1")
    assert ended is not None and ended.exit is not None
    assert ended.exit.outcome is GangOutcome.LOST
    two_nodes.wait_until(lambda view: [node.name for node in view.cluster.nodes] == ["node-1"])
    two_nodes.backend.execute([lasting(each) for each in gang(two_nodes, "j2", "a-1")])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j2"), 120)


def test_scancel_by_somebody_ends_the_gang_and_says_so(running: SlurmHarness) -> None:
    """1 an admin cancels the allocation, 2 its gang is over and why is known, 3 nothing of it is left."""
    (job,) = running.jobs()
    running.cluster.run("scancel", job.split()[0])
    end = exit_of(running, "pair")
    assert end.outcome in (GangOutcome.LOST, GangOutcome.PREEMPTED)
    assert "Slurm end" in end.message or end.ended_by == "stop"
    eventually(lambda: not running.all_processes())


def test_what_others_use_is_not_given_to_gangs(slurm_harness: SlurmHarness) -> None:
    """1 another user's job takes one of two accelerators, 2 one worker goes, 3 the other works, 4 it comes back."""
    harness = slurm_harness
    harness.cluster.run("sbatch", "--gres=acc:a:1", "-o", "/dev/null", "--job-name=foreign", "--wrap", "sleep 600")

    def workers(seen: Observation) -> list[str]:
        return [worker.id for worker in seen.cluster.workers]

    harness.wait_until(lambda seen: workers(seen) == ["a-0", "b-0"])
    harness.backend.execute(gang(harness, "j1", "a-0"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.cluster.run("scancel", "--name=foreign")
    seen = harness.wait_until(lambda seen: workers(seen) == ["a-0", "a-1", "b-0"])
    assert is_in(GangState.RUNNING, "j1")(seen)


def test_a_drained_node_is_not_used_and_says_why(two_nodes: SlurmHarness) -> None:
    two_nodes.cluster.run("scontrol", "update", "NodeName=node-0", "State=drain", "Reason=fan is loud")
    seen = two_nodes.wait_until(lambda view: len(view.cluster.workers) == 1)
    problems = {node.name: node.problem for node in seen.cluster.nodes}
    assert problems == {"node-0": "it is drained in Slurm: fan is loud", "node-1": ""}
    two_nodes.cluster.run("scontrol", "update", "NodeName=node-0", "State=resume")
    two_nodes.wait_until(lambda view: len(view.cluster.workers) == 2)


def test_a_restarted_service_adopts_what_runs(running: SlurmHarness) -> None:
    """1 the service dies, 2 the next one finds gang and allocation, 3 nothing was started twice, 4 it can stop it."""
    before, jobs = running.all_processes(), running.jobs()
    running.crash()
    running.recover()
    running.wait_until(is_in(GangState.RUNNING, "pair"))
    assert (running.all_processes(), running.jobs()) == (before, jobs)
    running.backend.execute(stop("pair"))
    assert exit_of(running, "pair").outcome is GangOutcome.PREEMPTED


def test_a_service_that_lost_its_folder_adopts_what_the_nodes_know(running: SlurmHarness) -> None:
    before = running.all_processes()
    running.crash()
    running.backend = running.open(state_dir=running.folder / "another")
    adopted = find(running.wait_until(is_in(GangState.RUNNING, "pair")), "pair")
    assert adopted is not None
    assert adopted.worker_ids == ("a-0", "a-1")
    assert running.all_processes() == before
    running.backend.execute(gang(running, "next", "a-0"))
    assert state_of(running, "next") is GangState.WAITING
    running.backend.execute(stop("pair"))
    running.wait_until(is_in(GangState.RUNNING, "next"), 120)


def test_the_service_that_started_last_has_the_cluster(running: SlurmHarness) -> None:
    """Two services on one cluster: the older one is refused, and decides nothing any more."""
    newer = running.open(state_dir=running.folder / "another")
    try:

        def is_refused() -> bool:
            try:
                running.backend.observe()
            except BackendUnavailable as problem:
                return "taken" in str(problem)
            return False

        eventually(is_refused)
        assert is_in(GangState.RUNNING, "pair")(newer.observe())
    finally:
        newer.close()


def test_what_slurm_ended_while_the_service_was_away_is_reported(running: SlurmHarness) -> None:
    """1 the service dies, 2 the allocation is cancelled, 3 the next service reports the end of the gang."""
    (job,) = running.jobs()
    running.crash()
    running.cluster.run("scancel", job.split()[0])
    eventually(lambda: not running.jobs())
    running.recover()
    assert exit_of(running, "pair").outcome in (GangOutcome.LOST, GangOutcome.PREEMPTED)


def test_time_limits_follow_leases(
    one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 an operator's allocation ends soon after its lease, 2 a longer lease moves its end, in place."""
    from gavel.ports import ExtendLease

    def minutes(harness: SlurmHarness) -> int:
        return int(harness.cluster.run("squeue", "-h", "-o", "%l").partition(":")[0])

    with a_service_on(one_node, tmp_path, monkeypatch, limit_s=0.0) as harness:
        harness.backend.execute(gang(harness, "j1", lasts_s=60))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        assert minutes(harness) <= 5
        before = harness.jobs()
        later = ExtendLease(job_id="j1", generation=1, expires_at_s=harness.now_s() + 1200)
        harness.backend.execute([later])
        harness.wait_until(lambda _: minutes(harness) >= 21)
        assert harness.jobs() == before


def test_an_account_without_rights_is_a_reason_of_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm refuses what the partition does not allow: the gang says so while it waits, and the service goes on."""
    node = SlurmNodeSpec(name="here", gres={"acc:a": 1})
    options = {"options": ("--qos=nobody-has-it", "--partition=absent")}
    with (
        LocalSlurmCluster([node]) as cluster,
        a_service_on(cluster, tmp_path, monkeypatch, workers=1, **options) as harness,
    ):
        harness.backend.execute(gang(harness, "j1"))

        def says_why(seen: Observation) -> bool:
            each = find(seen, "j1")
            return each is not None and "Slurm refuses an allocation" in each.waiting_for

        harness.wait_until(says_why)
        assert len(harness.backend.observe().cluster.workers) == 1


def test_a_partition_that_is_not_there_is_named_with_those_that_are(
    one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlurmHarness, "has_workers", lambda self, backend: "no partition" in _note(backend))
    with a_service_on(one_node, tmp_path, monkeypatch, partition="gold") as harness:
        assert "there is no partition gold" in _note(harness.backend)
        assert "main" in _note(harness.backend)


def test_a_node_on_which_no_agent_can_work_says_why(
    one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 its folder for gangs cannot be made, 2 the node is not used for a while and says why."""
    with a_service_on(one_node, tmp_path, monkeypatch) as harness:
        (tmp_path / "nodes").write_text("a file is in the way")
        harness.backend.execute(gang(harness, "j1"))
        seen = harness.wait_until(lambda view: bool(view.cluster.nodes[0].problem))
        assert f"its agent cannot work: [Errno 20] Not a directory: '{tmp_path}" in seen.cluster.nodes[0].problem
        assert not seen.cluster.workers


def test_a_cluster_without_generic_resources_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        LocalSlurmCluster([SlurmNodeSpec(name="here", gres={})]) as cluster,
        a_service_on(cluster, tmp_path, monkeypatch, workers=0) as harness,
    ):
        harness.wait_until(lambda _: any("has generic resources named acc" in each for each in harness.backend.notes()))


def _note(backend: object) -> str:
    with suppress(BackendUnavailable):
        backend.observe()  # type: ignore[attr-defined]
    return " ".join(backend.notes())  # type: ignore[attr-defined]
