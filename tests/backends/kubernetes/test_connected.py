"""Pods that see no folder of the service: orders and replies go over connections that they make."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.nodes.relay import ORDERS_PATH
from tests.backends.connected import an_api
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.test_on_stand_in import CHOSEN


@contextmanager
def connected(folder: Path, kubeconfig: Path) -> Iterator[KubernetesHarness]:
    state_dir = folder / "state"
    with an_api(state_dir) as api:
        over = {"folder": str(state_dir / "orders"), "orders_url": f"{api.url}{ORDERS_PATH}", "shared_dir": ""}
        with a_service_on(kubeconfig, folder, **over) as made:
            yield made


def named(names: set[str] | None = None) -> list[Check]:
    wanted = {each.__name__ for each in CHECKS} - KubernetesHarness.cannot.keys() if names is None else names
    return [each for each in CHECKS if each.__name__ in wanted]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", named(CHOSEN), ids=lambda check: check.__name__)
def test_it_conforms(check: Check, tmp_path: Path) -> None:
    with a_stand_in(tmp_path) as kubeconfig, connected(tmp_path / "own", kubeconfig) as harness:
        check(harness)


@pytest.mark.kubernetes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("check", named(), ids=lambda check: check.__name__)
def test_it_conforms_on_a_real_control_plane(check: Check, plane: ControlPlane, tmp_path: Path) -> None:
    with connected(tmp_path, plane.kubeconfig) as harness:
        check(harness)
