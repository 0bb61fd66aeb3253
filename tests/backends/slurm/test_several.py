"""One service on this machine and on a Slurm cluster at once: each is a region."""

import json
import sys
from pathlib import Path

import pytest

from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
LIMIT_S = 120
PROGRAM = """
import time
from gavel_runtime import job

for step in job.steps(total=1000):
    time.sleep(0.02)
"""
RESUMING = """
import json, os, time
from gavel_runtime import job

def save(folder):
    (folder / "step.json").write_text(json.dumps(at))

def restore(folder):
    global at
    at = json.loads((folder / "step.json").read_text())

at = 0
is_first = True
for step in job.steps(checkpoint=save, restore=restore, total=10000):
    if is_first:
        print("begins at", at)
        with (job.output_dir / "begun").open("a") as begun:
            print(at, file=begun)
        is_first = False
    at += 1
    time.sleep(0.001 if os.environ["GAVEL_ACCELERATOR_TYPE"] == "a" else 0.02)
"""


def service(folder: Path, cluster: LocalSlurmCluster) -> ServiceProcess:
    slurm = {"shared_dir": str(folder / "shared"), "node_dir": str(folder / "state/nodes"), "gres": ["acc"]}
    backends = {"here": {"backend": "local", "cpu_workers": "2"}, "hpc": {"backend": "slurm", "slurm": slurm}}
    own = {
        "GAVEL_BACKEND": "several",
        "GAVEL_BACKENDS": json.dumps(backends),
        "GAVEL_ROUND_DURATION_S": "20",
        "GAVEL_LEASE_GRACE_S": "2",
        "GAVEL_REGIONS": '{"interval_s": 5}',
    }
    return ServiceProcess(folder / "state", {**own, **cluster.environment})


def test_a_region_that_cannot_be_reached_keeps_its_gang_and_the_other_is_planned(tmp_path: Path) -> None:
    """1 A job in each region. 2 Slurm's controller dies and the service is killed: nobody can be asked of that region.

    3 The next service says so and runs another job here. 4 The controller is back: the gang was there all the time.
    """
    (tmp_path / "train.py").write_text(PROGRAM)
    argv = [sys.executable, "-u", str(tmp_path / "train.py")]
    with (
        LocalSlurmCluster([SlurmNodeSpec(name="node-0", gres={"acc:a": 1})]) as cluster,
        service(tmp_path, cluster) as running,
    ):
        with Client(running.url, running.operator_token) as gavel:
            assert wait_until(lambda: regions(gavel) == {"here", "hpc"}, LIMIT_S), running.output()
            far = gavel.submit(argv=argv, regions=["hpc"])["id"]
            near = gavel.submit(argv=argv, regions=["here"])["id"]
            assert wait_until(lambda: all(gavel.job(each)["steps_reported"] for each in (far, near)), LIMIT_S)
        cluster.stop_controller()
        running.kill()
        running.start()
        with Client(running.url, running.operator_token) as gavel:
            assert wait_until(lambda: "Region hpc (slurm) cannot be reached since" in notes(gavel), LIMIT_S)
            assert wait_until(lambda: regions(gavel) == {"here"}, LIMIT_S)
            other = gavel.submit(argv=argv, regions=["here"])["id"]
            assert wait_until(lambda: gavel.job(other)["steps_reported"] > 0, LIMIT_S)
            late = gavel.submit(argv=argv, regions=["hpc"])["id"]  # its region is known, though no node of it is
            cluster.start_controller()
            assert wait_until(lambda: regions(gavel) == {"here", "hpc"}, LIMIT_S), notes(gavel)
            gavel.cancel(late)
            ended = [gavel.wait(each, timeout_s=2 * LIMIT_S) for each in (far, near, other)]
            assert [(each["state"], each["steps_done"]) for each in ended] == [("COMPLETED", 1000)] * 3
            assert {name.partition("@")[2] for name in ended[0]["received_s"]} == {"hpc"}
    assert not running.processes_left()


def test_a_gang_runs_on_through_rounds_while_the_controller_of_its_region_is_away(tmp_path: Path) -> None:
    """Its agent answers all the time. Once no gang is left there nobody does, and the region cannot be reached."""
    (tmp_path / "train.py").write_text(PROGRAM.replace("total=1000", "total=2500"))
    argv = [sys.executable, "-u", str(tmp_path / "train.py")]
    with (
        LocalSlurmCluster([SlurmNodeSpec(name="node-0", gres={"acc:a": 1})]) as cluster,
        service(tmp_path, cluster) as running,
        Client(running.url, running.operator_token) as gavel,
    ):
        assert wait_until(lambda: regions(gavel) == {"here", "hpc"}, LIMIT_S), running.output()
        far = gavel.submit(argv=argv, regions=["hpc"])["id"]
        assert wait_until(lambda: gavel.job(far)["steps_reported"] > 0, LIMIT_S)
        cluster.stop_controller()
        ended = gavel.wait(far, timeout_s=3 * LIMIT_S)
        assert (ended["state"], ended["generation"]) == ("COMPLETED", 1), ended["message"]
        assert wait_until(lambda: "Region hpc (slurm) cannot be reached since" in notes(gavel), LIMIT_S)
        assert regions(gavel) == {"here"}


def test_a_job_that_moves_to_a_region_with_another_storage_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """It begins here, as Slurm does not answer. When that does, it moves there, which sees no folder of this place."""
    (tmp_path / "train.py").write_text(RESUMING)
    argv = [sys.executable, "-u", str(tmp_path / "train.py")]
    with LocalSlurmCluster([SlurmNodeSpec(name="node-0", gres={"acc:a": 1})]) as cluster:
        cluster.stop_controller()
        with service(tmp_path, cluster) as running, Client(running.url, running.operator_token) as gavel:
            assert wait_until(lambda: regions(gavel) == {"here"}, LIMIT_S), running.output()
            fast = {"a": 5000.0}  # claimed of the type that is only there
            job = gavel.submit(argv=argv, data_region="here", data_bytes=1, total_steps=10_000, throughputs=fast)["id"]
            assert wait_until(lambda: bool(gavel.job_checkpoints(job)["accepted"]), LIMIT_S), gavel.job(job)
            cluster.start_controller()
            ended = gavel.wait(job, timeout_s=3 * LIMIT_S)
            assert (ended["state"], ended["steps_done"]) == ("COMPLETED", 10_000), (ended["message"], ended["log_tail"])
            assert {name.partition("@")[2] for name in ended["received_s"]} == {"here", "hpc"}
            assert "job.moved" in [event["kind"] for event in gavel.events(job)]
            begun = [int(line.split()[-1]) for line in gavel.logs(job)[0].splitlines() if line.startswith("begins at")]
            assert begun == sorted(begun) and begun[0] == 0 and begun[-1] > 0
            assert [int(line) for line in b"".join(gavel.read_file(job, "begun")).split()] == begun
            assert (tmp_path / "shared/checkpoints/_outputs" / job / "begun").read_text().split() == [*map(str, begun)]
            assert all((tmp_path / place / job).is_dir() for place in ("state/checkpoints", "shared/checkpoints"))


def regions(gavel: Client) -> set[str]:
    return {each["id"].partition("@")[2] for each in gavel.cluster()["workers"]}


def notes(gavel: Client) -> str:
    return "\n".join(gavel.cluster()["notes"])
