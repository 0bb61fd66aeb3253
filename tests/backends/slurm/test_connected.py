"""Nodes that see no folder of the service: orders and replies go over connections that they make."""

from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.nodes.relay import ORDERS_PATH
from gavel.backends.slurm.local_cluster import LocalSlurmCluster
from tests.backends.connected import an_api
from tests.backends.kubernetes.test_on_stand_in import CHOSEN
from tests.backends.slurm.clusters import SlurmHarness, a_service_on

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
ONE_NODE = {each for each in CHOSEN if "span" not in each and "lost_node" not in each}
CODE = {"a_gang_runs_in_a_copy_of_its_code"}


@pytest.mark.parametrize(
    "check",
    [each for each in CHECKS if each.__name__ in ONE_NODE | CODE],
    ids=lambda check: check.__name__,
)
def test_it_conforms(
    check: Check, one_node: LocalSlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = tmp_path / "state"
    with an_api(state_dir) as api:
        own = {"folder": str(state_dir / "orders"), "orders_url": f"{api.url}{ORDERS_PATH}"}
        with a_service_on(one_node, tmp_path, monkeypatch, **own) as harness:
            assert isinstance(harness, SlurmHarness)
            check(harness)
