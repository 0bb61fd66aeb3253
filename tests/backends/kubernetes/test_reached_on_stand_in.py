"""Ports and terminals of jobs in pods, with the whole service, on what plays the API server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gavel.backends.kubernetes.kubelets import LocalKubelets
from gavel.demo.service import ServiceProcess
from tests.backends.kubernetes.clusters import ONE_NODE
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.test_service import connected, service
from tests.backends.whole_service import is_reached_by_its_user
from tests.nginx import free_port


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("made", [service, connected], ids=["files", "connection"])
def test_a_session_in_a_pod_is_reached_by_its_user(
    made: Callable[[Path, Path], ServiceProcess], tmp_path: Path
) -> None:
    with a_stand_in(tmp_path) as kubeconfig:
        kubelets = LocalKubelets(str(kubeconfig), tmp_path / "pods", ONE_NODE)
        kubelets.start()
        try:
            is_reached_by_its_user(made(tmp_path, kubeconfig), free_port())
        finally:
            kubelets.stop()
