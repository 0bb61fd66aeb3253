"""The whole service on a Slurm cluster, over REST."""

from pathlib import Path

import pytest

from gavel.backends.slurm.local_cluster import LocalSlurmCluster
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

PROGRAM = """
import os, pathlib
from gavel_runtime import job

for step in job.steps(total=30, checkpoint=lambda folder: (folder / "state").write_text("here"), restore=print):
    pass
print(os.environ["TOKEN"], pathlib.Path("word").read_text())
(job.output_dir / "result").write_text("done")
"""


def service(folder: Path, environment: dict[str, str]) -> ServiceProcess:
    own = {
        "GAVEL_BACKEND": "slurm",
        "GAVEL_SLURM__SHARED_DIR": str(folder / "shared"),
        "GAVEL_SLURM__NODE_DIR": str(folder / "state" / "nodes"),
        "GAVEL_SLURM__GRES": '["acc"]',
        "GAVEL_ROUND_DURATION_S": "10",
    }
    return ServiceProcess(folder / "state", {**own, **environment})


def test_a_job_trains_on_slurm_and_survives_a_killed_service(one_node: LocalSlurmCluster, tmp_path: Path) -> None:
    """1 submit, 2 it trains on a worker of Slurm's, 3 kill -9 of the service, 4 the next one finishes it exactly."""
    with service(tmp_path, one_node.environment) as running:
        with Client(running.url, running.operator_token) as gavel:
            assert wait_until(lambda: len(gavel.cluster()["workers"]) == 3, 90)
            job = gavel.submit(kind="mlp-b256", total_steps=150)
            assert wait_until(lambda: gavel.job(job["id"])["steps_reported"] > 0, 120)
        running.kill()
        running.start()
        with Client(running.url, running.operator_token) as gavel:
            done = gavel.wait(job["id"], timeout_s=240)
            assert (done["state"], done["steps_done"]) == ("COMPLETED", 150), done["message"]
            assert [node["name"] for node in gavel.cluster()["nodes"]] == ["here"]
    assert not running.processes_left()


def test_a_job_brings_its_code_and_leaves_its_results(one_node: LocalSlurmCluster, tmp_path: Path) -> None:
    """1 code is uploaded, a secret stored, 2 the job runs it on a node, 3 files and checkpoint are downloaded."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(PROGRAM)
    (project / "word").write_text("hello")
    with (
        service(tmp_path, one_node.environment) as running,
        Client(running.url, running.operator_token) as gavel,
    ):
        assert wait_until(lambda: len(gavel.cluster()["workers"]) == 3, 90)
        gavel.put_secret("TOKEN", "a-secret-value")
        code = gavel.store_code(project)
        job = gavel.submit(argv=["python", "train.py"], code=code, secrets=["TOKEN"])
        done = gavel.wait(job["id"], timeout_s=240)
        assert (done["state"], done["steps_done"]) == ("COMPLETED", 30), done["message"]
        assert gavel.logs(job["id"])[0].splitlines()[-1] == "*** hello"
        assert b"".join(gavel.read_file(job["id"], "result")) == b"done"
        (checkpoint, *_) = gavel.job_checkpoints(job["id"])["items"]
        assert b"".join(gavel.read_checkpoint(job["id"], checkpoint["name"])).startswith(checkpoint["name"].encode())
        assert (tmp_path / "shared/checkpoints/_outputs" / job["id"] / "result").exists()


def test_a_cluster_that_is_not_there_is_reported_over_rest_while_the_rest_goes_on(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=gavel\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n0\n")
    with (
        service(tmp_path, {"SLURM_CONF": str(conf)}) as running,
        Client(running.url, running.operator_token) as gavel,
    ):
        assert wait_until(lambda: any("Slurm does not answer" in note for note in gavel.cluster()["notes"]), 120)
        assert [tier["name"] for tier in gavel.tiers()]
