"""Nodes on hosts of their own, each with its own network: how ranks meet there, and a host that is cut off."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, find, gang, is_in, spread_gang
from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.errors import BackendUnavailable
from gavel.ports import LaunchGang, SetResources
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import GRACE_S, eventually, processes_of
from tests.backends.networks import CAN_MAKE, Hosts
from tests.backends.ray.clusters import RayHarness, a_service_on
from tests.backends.ray.test_gangs_over_nodes import ISOLATED
from tests.quiet_network import changing_network

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CAN_MAKE, reason="network namespaces: needs root and `ip`"),
]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with changing_network(), Hosts(2) as made:
        yield made


@pytest.fixture
def apart(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHarness]:
    """A service beside the head, and a worker on each of two hosts."""
    nodes = [NodeSpec(name="head", resources={}, address=hosts.here)]
    for index in range(2):
        spec = NodeSpec(name=f"host-{index}", resources={"gavel:a": 1}, address=hosts.address(index))
        nodes.append(replace(spec, within=hosts.within(index)))
    with LocalRayCluster(nodes) as cluster, a_service_on(cluster, tmp_path, monkeypatch, workers=2) as made:
        yield made


def test_ranks_meet_over_the_network_and_a_host_that_is_cut_off_ends_its_gang_before_the_next_one_starts(
    apart: RayHarness, hosts: Hosts
) -> None:
    """1 ranks on two hosts reduce, 2 a gang trains, 3 its cable is pulled, 4 it is lost, 5 the next one waits for its
    lease, 6 and starts on the other host when nothing runs on the first any more."""
    *resources, start = spread_gang(apart, "sums", 0, 1)
    assert isinstance(start, LaunchGang)
    apart.backend.execute([*resources, replace(start, argv=(*ISOLATED, "all-reduce"))])
    end = exit_of(apart, "sums")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    sums = apart.backend.read_log("sums")[0].decode().splitlines()
    assert sorted(sums) == [f"[{rank}] sum 5 on node rank {rank} local rank 0" for rank in range(2)]

    nodes = [node.name for node in apart.backend.observe().cluster.nodes]
    there = apart.folder / "nodes" / nodes[0]
    expires_at_s = apart.now_s() + 20
    apart.backend.execute(gang(apart, "j1", "a-0", lasts_s=20))
    apart.wait_until(is_in(GangState.RUNNING, "j1"))
    running = processes_of(there)
    hosts.cut(0)
    assert exit_of(apart, "j1").outcome is GangOutcome.LOST
    if apart.now_s() < expires_at_s - 1:
        assert processes_of(there) == running, "it was only cut off"
    named, again = gang(apart, "j1", "a-1", generation=2)
    assert isinstance(named, SetResources)
    apart.backend.execute([SetResources(resources=(replace(named.resources[0], node=nodes[1]),)), again])

    def never_doubled() -> bool:
        with suppress(BackendUnavailable):
            if is_in(GangState.RUNNING, "j1", generation=2)(apart.backend.observe()):
                assert processes_of(there) == []
                return True
        return False

    eventually(never_doubled, 90)
    began = find(apart.backend.observe(), "j1", generation=2)
    assert began is not None and began.started_at_s is not None
    assert began.started_at_s > expires_at_s + GRACE_S
