"""Fixtures of the Slurm backend's tests: one real cluster for all of them, skipped unless asked for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec, missing_daemons
from tests.backends.slurm.clusters import SlurmHarness, a_service_on

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where Slurm is not installed nothing can run on it; a cluster of it takes seconds: only when asked for."""
    reason = "" if FULL or "slurm" in (config.getoption("-m") or "") else "make test-full, or pytest -m slurm"
    if missing := missing_daemons():
        reason = f"not installed (apt-get install slurm-wlm munge): {missing}"
    for item in items if reason else ():
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.skip(reason=f"a Slurm cluster: {reason}"))


@pytest.fixture(scope="session")
def one_node() -> Iterator[LocalSlurmCluster]:
    """A cluster of one node with the workers that the conformance suite expects."""
    with LocalSlurmCluster([SlurmNodeSpec(name="here", gres={"acc:a": 2, "acc:b": 1})]) as cluster:
        yield cluster


@pytest.fixture
def slurm_harness(
    one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmHarness]:
    """A service's backend on the cluster of one node; all its gangs are gone afterwards."""
    with a_service_on(one_node, tmp_path, monkeypatch) as made:
        yield made
