"""Pods that see no folder of the service: orders and replies go over connections that they make."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.harness import exit_of, gang, is_in, stop
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.nodes.relay import ORDERS_PATH
from gavel.types import GangOutcome, GangState, Observation
from tests.backends.clusters import eventually
from tests.backends.connected import an_api
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.test_on_stand_in import CHOSEN
from tests.backends.networks import CAN_MAKE, Hosts
from tests.quiet_network import changing_network


@contextmanager
def connected(
    folder: Path, kubeconfig: Path, listens_on: str = "127.0.0.1", **over: Any
) -> Iterator[KubernetesHarness]:
    state_dir = folder / "state"
    with an_api(state_dir, listens_on) as api:
        own = {"folder": str(state_dir / "orders"), "orders_url": f"{api.url}{ORDERS_PATH}", "shared_dir": ""}
        with a_service_on(kubeconfig, folder, **own, **over) as made:
            yield made


@pytest.fixture
def behind_a_cable(tmp_path: Path) -> Iterator[tuple[KubernetesHarness, Hosts]]:
    """A service whose pods run on a host of their own."""
    with changing_network(), Hosts(1) as hosts, a_stand_in(tmp_path) as kubeconfig:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {shlex.join((*hosts.within(0), sys.executable))} "$@"\n')
        python.chmod(0o755)
        with connected(tmp_path / "own", kubeconfig, hosts.here, python=str(python)) as made:
            yield made, hosts


def is_silent(seen: Observation) -> bool:
    return any("its agent does not answer" in node.problem for node in seen.cluster.nodes)


@pytest.mark.full
@pytest.mark.skipif(not CAN_MAKE, reason="network namespaces: needs root and `ip`")
@pytest.mark.timeout(300)
def test_a_cut_cable_stops_no_gang_before_its_lease_ends_and_none_runs_longer(
    behind_a_cable: tuple[KubernetesHarness, Hosts],
) -> None:
    """1 the gang runs on while nobody reaches it, 2 it is told to stop once the cable is mended, 3 another one, that
    nobody reaches any more, ends with its lease."""
    harness, hosts = behind_a_cable
    harness.backend.execute(gang(harness, "j1", lasts_s=300))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    running = harness.processes()
    hosts.cut(0)
    harness.wait_until(is_silent)
    harness.backend.execute(stop("j1"))
    assert is_in(GangState.RUNNING, "j1")(harness.backend.observe())
    assert harness.processes() == running > 0
    hosts.mend(0)
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED
    assert not is_silent(harness.backend.observe())

    harness.backend.execute(gang(harness, "j2", lasts_s=20))
    harness.wait_until(is_in(GangState.RUNNING, "j2"))
    hosts.cut(0)
    eventually(lambda: harness.processes() == 0, 60)
    hosts.mend(0)
    assert exit_of(harness, "j2").outcome in (GangOutcome.PREEMPTED, GangOutcome.EXITED)


def named(names: set[str] | None = None) -> list[Check]:
    wanted = {each.__name__ for each in CHECKS} - KubernetesHarness.cannot.keys() if names is None else names
    return [each for each in CHECKS if each.__name__ in wanted]


@pytest.mark.small("a_gang_starts_when_its_resource_is_there")
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
