"""Clusters that cannot be joined and nodes that cannot be used: each says so in one line, the rest goes on."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from gavel.backends.harness import gang, is_in
from gavel.backends.ray import link
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.bridge import explained, version_notes
from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.backends.ray.protocol import RaySettings
from gavel.clock import SystemClock
from gavel.errors import BackendUnavailable, InvalidRequest
from gavel.types import GangState
from tests.backends.clusters import eventually
from tests.backends.ray.clusters import RayHarness

LACKS_GAVEL = """
import sys

class Lacks:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gavel":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacks())
"""


def a_backend(folder: Path, address: str) -> RayBackend:
    return RayBackend(
        state_dir=folder / "state",
        ray=RaySettings(address=address, node_folder=str(folder / "nodes")),
        clock=SystemClock(),
        lease_grace_s=1.0,
        log_bytes_per_job=4096,
    )


def says(backend: RayBackend, words: str) -> Callable[[], bool]:
    """True once observing fails, and both the error and the notes for the dashboard hold these words."""

    def look() -> bool:
        try:
            backend.observe()
        except BackendUnavailable as problem:
            return words in str(problem) and any(words in note for note in backend.notes())
        return False

    return look


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "find_spec", lambda name: None)
    with pytest.raises(InvalidRequest) as refused:
        a_backend(tmp_path, "auto")
    assert str(refused.value) == "backend: ray is not installed: pip install 'gavel[ray]'"


def test_a_ray_client_address_without_grpc_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "find_spec", lambda name: None if name == "grpc" else find_spec(name))
    with pytest.raises(InvalidRequest) as refused:
        a_backend(tmp_path, "ray://10.0.0.1:10001")
    assert str(refused.value).startswith("ray_address: ray:// needs grpcio")
    assert "pip install 'ray[client]'" in str(refused.value)


@pytest.mark.parametrize("version", ["2.60.0", "2.60.7"])
def test_a_version_of_ray_that_was_tested_is_not_mentioned(version: str) -> None:
    assert version_notes(version) == ()


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "3.0.0"])
def test_another_version_of_ray_is_a_note_with_the_range(version: str) -> None:
    assert version_notes(version) == (f"Ray {version} is outside the range that was tested (>=2.60,<2.61)",)


def test_what_ray_says_is_one_line_for_an_operator() -> None:
    assert "RAY_AUTH_TOKEN" in explained(RuntimeError("InvalidAuthToken: Unauthenticated\nsee docs"), "a:1")
    assert "no Ray cluster answers at a:1" in explained(ConnectionError("x" * 5000), "a:1")
    mismatch = explained(RuntimeError("Version mismatch: The cluster was started with:\n Ray: 2.5"), "a:1")
    assert "Version mismatch" in mismatch
    assert "\n" not in mismatch


@pytest.mark.ray
def test_an_address_where_nothing_listens_is_a_note_and_no_crash(tmp_path: Path) -> None:
    backend = a_backend(tmp_path, "127.0.0.1:1")
    try:
        eventually(says(backend, "no Ray cluster answers at 127.0.0.1:1"), 90)
    finally:
        backend.close()


@pytest.mark.ray
def test_a_wrong_token_is_a_note_that_names_the_variable(
    one_node: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "not-the-token-of-this-cluster-at-all")
    backend = a_backend(tmp_path, one_node.address)
    try:
        eventually(says(backend, "RAY_AUTH_TOKEN"), 90)
    finally:
        backend.close()


@pytest.mark.ray
def test_a_node_without_our_package_is_named_and_the_others_work(ray_harness: RayHarness, tmp_path: Path) -> None:
    """1 one of two nodes lacks gavel, 2 its problem says what to install, 3 the other one runs gangs."""
    (tmp_path / "sitecustomize.py").write_text(LACKS_GAVEL)  # this machine has it, and Ray would find it
    ray_harness.backend.close()
    lacking = NodeSpec(name="lacking", resources={"gavel:b": 1}, environment={"PYTHONPATH": str(tmp_path)})
    cluster = LocalRayCluster([NodeSpec(name="good", resources={"gavel:a": 1}), lacking])
    with cluster:
        ray_harness.environ(cluster)
        ray_harness.address, ray_harness.workers = cluster.address, 1
        ray_harness.folder = tmp_path / "two"
        ray_harness.recover()

        def is_named() -> bool:
            nodes = {node.name: node.problem for node in ray_harness.backend.observe().cluster.nodes}
            return "pip install 'gavel[ray]'" in nodes.get("lacking", "") and nodes["good"] == ""

        eventually(is_named, 60)
        ray_harness.backend.execute(gang(ray_harness, "j1", "a-0"))
        ray_harness.wait_until(is_in(GangState.RUNNING, "j1"))
        ray_harness.close()
