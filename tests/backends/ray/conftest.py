"""Fixtures of the Ray backend's tests: one real cluster for all of them, skipped unless asked for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from tests.backends.ray.clusters import RayHarness, a_service_on

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A Ray cluster takes seconds to start and a gigabyte: only when asked for."""
    if FULL or "ray" in (config.getoption("-m") or ""):
        return
    skip = pytest.mark.skip(reason="a Ray cluster: make test-full, or pytest -m ray")
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def one_node() -> Iterator[LocalRayCluster]:
    """A cluster of one node with the workers that the conformance suite expects."""
    with LocalRayCluster([NodeSpec(name="here", resources={"gavel:a": 2, "gavel:b": 1})]) as cluster:
        yield cluster


@pytest.fixture
def ray_harness(one_node: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHarness]:
    """A service's backend on the cluster of one node, with folders of its own; all its gangs are gone afterwards."""
    with a_service_on(one_node, tmp_path, monkeypatch) as made:
        yield made
