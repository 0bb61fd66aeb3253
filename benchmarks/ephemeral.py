"""How long primitives, matcher and libraries take on 1,000 nodes; the paper's gangs and pairs on each cluster."""

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks import ephemeral_gangs, ephemeral_pairs
from benchmarks.table import Row, run
from gavel.ephemeral import GangRequest, InProcess, Member, ResourceTable, match, request_for
from gavel.ephemeral.libraries import CoLocation, FairSharing, GangPool, Library, LoadBalancing, Share, Write, compose

NODES = [f"n{index}" for index in range(1000)]


def rows(quick: bool) -> Iterator[Row]:
    repetitions = 200 if quick else 2000
    table = a_cluster()
    once = median_ms(lambda i: table.set_resource("q", 1 + i % 2, NODES[i % 1000], 60, "app", 0.0), repetitions)
    yield Row("set_resource, one name on one node", once, "ms", 0.1)
    cluster = InProcess(table, now_s=0.0)
    batch = median_ms(
        lambda i: cluster.set_resource(*(Write(f"app/b{n}", NODES[n], 1 + i % 2) for n in range(64))), repetitions // 10
    )
    yield Row("set_resource, 64 names in one step", batch, "ms")
    yield Row("get_cluster_state, 9,000 names", median_ms(lambda i: cluster.get_cluster_state(), 20), "ms")
    yield from matching(table, repetitions // 10)
    for name, library in libraries().items():
        yield Row(f"apply {name}", apply_ms(library, cluster), "ms")
    yield from ephemeral_gangs.rows(quick)
    yield from ephemeral_pairs.rows(quick)


def matching(table: ResourceTable, repetitions: int) -> Iterator[Row]:
    """A gang that names its workers, as the scheduler's do, and one that may go anywhere."""
    table.set_resource("gang", 8, NODES[-8:], 60, "app", 0.0)
    named = [Member({"app/gang": 1, f"node/worker-{992 + i // 8}-{i % 8}": 1}) for i in range(64)]
    anywhere = [Member({"node/cpu": 1})] * 64
    for name, members in (("by name", named), ("anywhere", anywhere)):
        requests = [GangRequest((f"{name}-{i}", 1), tuple(members)) for i in range(repetitions)]

        def place(i: int, requests: list[GangRequest] = requests) -> None:
            assert match(table, [requests[i]], 0.0)
            table.release(requests[i].gang)

        yield Row(f"match and release 64 gang members, {name}", median_ms(place, repetitions), "ms", 1.0)
    nowhere = request_for(("x", 1), {"node/cpu": 99}, compose(), 0.0)
    yield Row("match a task that fits nowhere", median_ms(lambda i: match(table, [nowhere], 0.0), 50), "ms")


def apply_ms(library: Library, cluster: InProcess) -> float:
    return median_ms(lambda i: library.apply(cluster), 10)


def libraries() -> dict[str, Library]:
    """One of each cost: a name on one node, on every node, on a part of them, and moves between two names."""
    users = tuple(Share(f"res/u{index}") for index in range(10))
    sharing = FairSharing(Share("all", children=users), frozenset(each.name for each in users))
    return {
        "co-location": CoLocation("app/pair", {"node/cpu": 1}, 2),
        "load balancing": LoadBalancing("app/lb", {"node/cpu": 1}),
        "fair sharing, 10 users": sharing.of("res/u0"),
        "gang of 64": GangPool("app/slots", dict.fromkeys(NODES, 8)).of("x", 64),
    }


def a_cluster() -> ResourceTable:
    """1,000 nodes of 8 workers and 8 CPU cores."""
    table = ResourceTable()
    for index, node in enumerate(NODES):
        table.add_node(node, {f"worker-{index}-{worker}": 1 for worker in range(8)} | {"cpu": 8})
    return table


def median_ms(action: Callable[[int], object], repetitions: int) -> float:
    """Median wall milliseconds of action(0), action(1), …"""
    spent = []
    for index in range(repetitions):
        began = time.perf_counter()
        action(index)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1e3


if __name__ == "__main__":
    run("Ephemeral resources in process, 1,000 nodes", rows)
