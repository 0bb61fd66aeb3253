"""By default two jobs share workers where that pays and both are known to fit into an accelerator's memory."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.planning.sharing import memory_of_types
from gavel.simulator.cluster import VirtualCluster
from gavel.store.memory import MemoryStore
from gavel.types import Cluster, Observation
from tests.mechanism.world import RATES, World, a_cluster_of_nodes

GIB = 1 << 30
BESIDE = {("mlp", "mlp", 1, "fast"): 8.0, ("mlp", "mlp", 1, "slow"): 4.0}  # 1.6 times the work of one alone


class Accelerators(VirtualCluster):
    """Says what jobs hold on its accelerators: each the same, two together twice that."""

    def __init__(self, cluster: Cluster, *rest: Any, held_bytes: int) -> None:
        super().__init__(cluster, *rest)
        self._held_bytes = held_bytes
        self.whole, self.seen = cluster, super().observe()

    def observe(self) -> Observation:
        seen = super().observe()
        on = [worker for gang in seen.gangs for worker in gang.worker_ids]
        gangs = []
        for gang in seen.gangs:
            held = self._held_bytes * (on.count(gang.worker_ids[0]) if gang.worker_ids else 1)
            gangs.append(replace(gang, reports=tuple(replace(r, accelerator_memory_bytes=held) for r in gang.reports)))
        self.seen = replace(seen, gangs=tuple(gangs))
        return self.seen


def a_cluster_with_memory(memory_bytes: int) -> Cluster:
    cluster = a_cluster_of_nodes(n0="fast fast", n1="slow slow")
    return replace(cluster, workers=tuple(replace(each, memory_bytes=memory_bytes) for each in cluster.workers))


def shared(memory_bytes: int, held_bytes: int = 0, stated_bytes: int = 0, **settings: Any) -> bool:
    """Whether any two of eight jobs shared an accelerator within half an hour."""
    world = World(store=MemoryStore(), cluster=a_cluster_with_memory(memory_bytes), **settings)
    world.backend = Accelerators(  # type: ignore[assignment]
        world.backend.whole, RATES, world.clock, 0.0, 0.5, float("inf"), None, BESIDE, held_bytes=held_bytes
    )
    world.driver = world.new_driver()
    for _ in range(8):
        world.submit(100_000, accelerator_memory_bytes=stated_bytes)
    world.run_until_s(300.0)
    return any(len(lease.combination) > 1 for plan in world.store.rounds() for lease in plan.leases)


@pytest.mark.parametrize(
    ("held", "stated", "is_shared"),
    [
        (6 * GIB, 0, True),  # seen
        (9 * GIB, 0, False),  # two do not fit
        (0, 6 * GIB, True),  # stated
        (0, 9 * GIB, False),
        (6 * GIB, 9 * GIB, False),  # whichever is more
        (0, 0, False),  # not known
    ],
)
def test_jobs_share_by_default_where_both_are_known_to_fit(held: int, stated: int, is_shared: bool) -> None:
    assert shared(16 * GIB, held, stated) is is_shared


def test_nothing_is_shared_on_accelerators_whose_memory_is_not_known_as_cpu_cores() -> None:
    assert not shared(0, held_bytes=GIB)


def test_an_operator_turns_it_off() -> None:
    assert not shared(16 * GIB, held_bytes=GIB, space_sharing=False)


def test_the_smallest_accelerator_of_a_type_counts() -> None:
    cluster = a_cluster_with_memory(16)
    first, *others = cluster.workers
    cluster = replace(cluster, workers=(replace(first, memory_bytes=4), *others))
    assert memory_of_types(cluster, ("fast", "slow")) == [4, 16]
