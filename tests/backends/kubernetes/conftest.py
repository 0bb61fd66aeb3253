"""Fixtures of the Kubernetes backend's tests: one real control plane for all, skipped where there is none."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane, missing_programs
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A control plane is no package: it runs where KUBERNETES_BIN names its programs, and when it is asked for."""
    reason = "" if FULL or "kubernetes" in (config.getoption("-m") or "") else "make test-full, or -m kubernetes"
    if missing := missing_programs():
        reason = missing
    for item in items if reason else ():
        if item.get_closest_marker("kubernetes"):
            item.add_marker(pytest.mark.skip(reason=f"a control plane of Kubernetes: {reason}"))


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane without any node, with a user who has no rights."""
    with ControlPlane(users=("nobody",)) as made:
        yield made


@pytest.fixture
def harness(plane: ControlPlane, tmp_path: Path) -> Iterator[KubernetesHarness]:
    """A service's backend on the one node that the conformance suite expects; all of it is gone afterwards."""
    with a_service_on(plane.kubeconfig, tmp_path) as made:
        yield made
