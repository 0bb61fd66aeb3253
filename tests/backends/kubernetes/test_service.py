"""The whole service on a Kubernetes cluster, over REST."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets
from gavel.demo.service import ServiceProcess
from tests.backends.kubernetes.clusters import ONE_NODE, A, B
from tests.backends.whole_service import brings_its_code_and_leaves_its_results, trains_and_survives_a_killed_service


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
    trains_and_survives_a_killed_service(service(tmp_path, plane.kubeconfig))


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_a_job_brings_its_code_and_leaves_its_results(
    plane: ControlPlane, kubelets: LocalKubelets, tmp_path: Path
) -> None:
    brings_its_code_and_leaves_its_results(
        service(tmp_path, plane.kubeconfig), tmp_path, tmp_path / "shared/checkpoints/_outputs"
    )
