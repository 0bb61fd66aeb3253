"""The whole service on a Kubernetes cluster, over REST."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets
from gavel.demo.service import ServiceProcess
from tests.backends.kubernetes.clusters import ONE_NODE, A, B
from tests.backends.whole_service import brings_its_code_and_leaves_its_results, trains_and_survives_a_killed_service
from tests.nginx import free_port


@pytest.fixture
def kubelets(plane: ControlPlane, tmp_path: Path) -> Iterator[LocalKubelets]:
    made = LocalKubelets(str(plane.kubeconfig), tmp_path / "pods", ONE_NODE)
    made.start()
    yield made
    made.stop()


def started(folder: Path, kubeconfig: Path, nodes: Path, own: Mapping[str, str]) -> ServiceProcess:
    common = {
        "GAVEL_BACKEND": "kubernetes",
        "GAVEL_KUBERNETES__KUBECONFIG": str(kubeconfig),
        "GAVEL_KUBERNETES__NODE_DIR": str(nodes),
        "GAVEL_KUBERNETES__NODE_VOLUME": json.dumps({"hostPath": {"path": str(nodes)}}),
        "GAVEL_KUBERNETES__PYTHON": sys.executable,
        "GAVEL_KUBERNETES__RESOURCES": json.dumps([A, B]),
        "GAVEL_ROUND_DURATION_S": "10",
    }
    return ServiceProcess(folder / "state", common | own)


def service(folder: Path, kubeconfig: Path) -> ServiceProcess:
    shared = folder / "shared"
    own = {
        "GAVEL_KUBERNETES__SHARED_DIR": str(shared),
        "GAVEL_KUBERNETES__SHARED_VOLUME": json.dumps({"hostPath": {"path": str(shared)}}),
    }
    return started(folder, kubeconfig, folder / "state" / "nodes", own)


def connected(folder: Path, kubeconfig: Path) -> ServiceProcess:
    """A service that shares no folder with its pods."""
    port = free_port()
    own = {
        "GAVEL_PORT": str(port),
        "GAVEL_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "GAVEL_KUBERNETES__ORDERS": "connection",
        "GAVEL_KUBERNETES__CHECKPOINT_DIR": f"file://{folder}/store",
        "GAVEL_KUBERNETES__SHARED_DIR": "/not/there",
    }
    return started(folder, kubeconfig, folder / "nodes", own)


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_pods_that_share_no_folder_with_the_service_survive_that_it_is_killed(
    plane: ControlPlane, kubelets: LocalKubelets, tmp_path: Path
) -> None:
    trains_and_survives_a_killed_service(connected(tmp_path, plane.kubeconfig))


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_pods_that_share_no_folder_with_the_service_bring_code_and_leave_results(
    plane: ControlPlane, kubelets: LocalKubelets, tmp_path: Path
) -> None:
    brings_its_code_and_leaves_its_results(connected(tmp_path, plane.kubeconfig), tmp_path, tmp_path / "store/_outputs")


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
