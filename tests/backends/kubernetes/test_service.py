"""The whole service on a Kubernetes cluster, over REST."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.backends.kubernetes.clusters import ONE_NODE, A, B

PROGRAM = """
import os, pathlib
from gavel_runtime import job

for step in job.steps(total=30, checkpoint=lambda folder: (folder / "state").write_text("here"), restore=print):
    pass
print(os.environ["TOKEN"], pathlib.Path("word").read_text())
(job.output_dir / "result").write_text("done")
"""


@pytest.fixture
def kubelets(plane: ControlPlane, tmp_path: Path) -> Iterator[LocalKubelets]:
    made = LocalKubelets(str(plane.kubeconfig), tmp_path / "pods", ONE_NODE)
    made.start()
    yield made
    made.stop()


def service(folder: Path, kubeconfig: Path) -> ServiceProcess:
    shared, nodes = folder / "shared", folder / "state" / "nodes"
    own = {
        "GAVEL_BACKEND": "kubernetes",
        "GAVEL_KUBERNETES__KUBECONFIG": str(kubeconfig),
        "GAVEL_KUBERNETES__SHARED_DIR": str(shared),
        "GAVEL_KUBERNETES__SHARED_VOLUME": json.dumps({"hostPath": {"path": str(shared)}}),
        "GAVEL_KUBERNETES__NODE_DIR": str(nodes),
        "GAVEL_KUBERNETES__NODE_VOLUME": json.dumps({"hostPath": {"path": str(nodes)}}),
        "GAVEL_KUBERNETES__PYTHON": sys.executable,
        "GAVEL_KUBERNETES__RESOURCES": json.dumps([A, B]),
        "GAVEL_ROUND_DURATION_S": "10",
    }
    return ServiceProcess(folder / "state", own)


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_a_job_trains_on_kubernetes_and_survives_a_killed_service(
    plane: ControlPlane, kubelets: LocalKubelets, tmp_path: Path
) -> None:
    """1 submit, 2 it trains in a pod, 3 kill -9 of the service, 4 the next one finishes it exactly."""
    with service(tmp_path, plane.kubeconfig) as running:
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


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_a_job_brings_its_code_and_leaves_its_results(
    plane: ControlPlane, kubelets: LocalKubelets, tmp_path: Path
) -> None:
    """1 code is uploaded, a secret stored, 2 the job runs it in a pod, 3 files and checkpoint are downloaded."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(PROGRAM)
    (project / "word").write_text("hello")
    with service(tmp_path, plane.kubeconfig) as running, Client(running.url, running.operator_token) as gavel:
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
