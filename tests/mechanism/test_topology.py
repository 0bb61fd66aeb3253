"""Gangs that stay in one zone: all their nodes have one value of a label, whatever else runs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.topology import fits_in_one_place
from gavel.types import Cluster, Node, Worker
from tests.builders import a_spec
from tests.conftest import IS_FULL
from tests.mechanism.world import World

ZONE = "topology.kubernetes.io/zone"
ENDLESS = 10**9
RATES = {("mlp", size, "fast"): 10.0 for size in (1, 2, 3, 4)}


def zones(*workers: int, per_node: int = 1) -> Cluster:
    """A zone for each number, with so many workers on nodes of `per_node`; and a node without a zone."""
    nodes = [
        (Node(name=f"n{zone}-{index}", labels={ZONE: f"z{zone}"}), per_node)
        for zone, count in enumerate(workers)
        for index in range(count // per_node)
    ]
    nodes.append((Node(name="bare"), 1))
    return Cluster(
        nodes=tuple(node for node, _ in nodes),
        workers=tuple(
            Worker(id=f"{node.name}-{index}", node=node.name, accelerator_type="fast")
            for node, count in nodes
            for index in range(count)
        ),
    )


def zones_of(world: World, job_id: str) -> list[set[str]]:
    """The zones of each lease of the job, "" for a node without."""
    of_worker = {w.id: w.node for w in world.backend.whole.workers}
    of_node = {node.name: node.labels.get(ZONE, "") for node in world.backend.whole.nodes}
    return [{of_node[of_worker[each]] for each in lease.worker_ids} for lease in world.leases_of(job_id)]


@settings(max_examples=80 if IS_FULL else 8, deadline=None)
@given(
    workers=st.lists(st.integers(2, 4), min_size=2, max_size=3),
    gangs=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    others=st.integers(0, 4),
)
def test_its_nodes_have_one_zone_in_every_round(workers: list[int], gangs: list[int], others: int) -> None:
    world = World(cluster=zones(*workers), rates=RATES)
    fitting = [size for size in gangs if size <= max(workers)]
    ids = [world.submit(ENDLESS, scale_factor=size, topology_label=ZONE, user=f"u{size}") for size in fitting]
    for _ in range(others):
        world.submit(ENDLESS, user="bob")
    world.run_until_s(150.0)
    for each in ids:
        assert all(len(zone) == 1 and zone != {""} for zone in zones_of(world, each))
        assert world.leases_of(each), "its turn comes"


def test_it_goes_where_it_fits_now_and_moves_no_further() -> None:
    """A session holds a worker of the larger zone, so that only the other has room for the gang of 3."""
    world = World(cluster=zones(3, 3), rates=RATES)
    stays = world.submit(ENDLESS, preemptible=False, longest_s=1000.0, node_labels={ZONE: "z0"}, user="bob")
    world.run(lambda: world.job(stays).started_at_s is not None)
    gang = world.submit(ENDLESS, scale_factor=3, topology_label=ZONE)
    world.run_until_s(world.clock.now_s() + 100.0)
    assert set(map(frozenset, zones_of(world, gang))) == {frozenset({"z1"})}
    assert world.job(gang).preemptions == 0


@pytest.mark.parametrize(("size", "fits"), [(2, True), (3, False)])
def test_one_that_fits_in_no_zone_is_known_at_its_submit(size: int, fits: bool) -> None:
    where = Feasibility(zones(2, 2))
    spec: dict[str, Any] = {"scale_factor": size, "topology_label": ZONE}
    assert fits_in_one_place(a_spec(**spec), where) is fits
    assert fits_in_one_place(a_spec(scale_factor=size), where)
