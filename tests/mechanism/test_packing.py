"""Gangs on nodes with few cores and little memory: never more than there is, and nearly as much as an exact packing."""

import os
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from gavel.mechanism.cluster.feasibility import Room, Workers
from gavel.mechanism.cluster.packing import Gang, PackingProblem, pack
from gavel.types import Cluster, Needs, Node, Worker

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
INSTANCES = 50 if FULL else 8
LEAST_UTILISATION = 0.95  # of the workers that the exact packing uses, over all instances


def an_instance(seed: int) -> tuple[Cluster, dict[int, tuple[int, Needs]]]:
    """Two to four nodes of 2 to 8 workers, and gangs (size, needs) that want more than there is."""
    draw = np.random.default_rng(seed)
    nodes, workers = [], []
    for index in range(int(draw.integers(2, 5))):
        count = int(draw.choice([2, 4, 8]))
        cores, memory = int(count * draw.choice([2, 4, 8])), int(count * draw.choice([8, 16, 32]))
        nodes.append(Node(name=f"n{index}", cpu_cores=cores, memory_bytes=memory))
        workers += [Worker(id=f"n{index}-{slot}", node=f"n{index}", accelerator_type="a") for slot in range(count)]
    gangs = {
        row: (
            int(draw.choice([1, 1, 2, 4])),
            Needs(cpu_cores=int(draw.choice([1, 2, 4, 8])), memory_bytes=int(draw.choice([0, 4, 8, 16, 32]))),
        )
        for row in range(int(draw.integers(6, 16)))
    }
    return Cluster(nodes=tuple(nodes), workers=tuple(workers)), gangs


def exact_workers(cluster: Cluster, gangs: dict[int, tuple[int, Needs]]) -> int:
    """The most workers that whole gangs can hold, by integer programming: x[g, n] ranks, and whether g is placed."""
    count, nodes = len(gangs), cluster.nodes
    on_node = Counter(worker.node for worker in cluster.workers)
    sizes = np.array([size for size, _ in gangs.values()])
    rows, upper, lower = [], [], []
    for index, node in enumerate(nodes):
        for each_needs, there in (
            ([1] * count, on_node[node.name]),
            ([needs.cpu_cores for _, needs in gangs.values()], node.cpu_cores),
            ([needs.memory_bytes for _, needs in gangs.values()], node.memory_bytes),
        ):
            x = np.zeros((count, len(nodes)))
            x[:, index] = each_needs
            rows.append(np.concatenate([x.ravel(), np.zeros(count)]))
            lower.append(-np.inf)
            upper.append(there)
    for gang in range(count):
        x, placed = np.zeros((count, len(nodes))), np.zeros(count)
        x[gang], placed[gang] = 1, -sizes[gang]
        rows.append(np.concatenate([x.ravel(), placed]))
        lower.append(0)
        upper.append(0)
    most = np.concatenate([np.repeat(sizes, len(nodes)), np.ones(count)])
    cost = np.concatenate([np.zeros(count * len(nodes)), -sizes])
    constraints = LinearConstraint(np.array(rows), lower, upper)
    answer = milp(cost, constraints=constraints, integrality=np.ones(len(cost)), bounds=Bounds(0, most))
    return round(-answer.fun)


def packed(cluster: Cluster, gangs: dict[int, tuple[int, Needs]]) -> dict[int, Workers]:
    chosen: list[Gang] = [(row, "a", size) for row, (size, _) in gangs.items()]
    return pack(
        PackingProblem(
            gangs=chosen,
            new_room=lambda: Room(cluster, {}),
            needs={row: needs for row, (_, needs) in gangs.items()},
            worth={row: float(size) for row, (size, _) in gangs.items()},
        )
    )


def assert_within(cluster: Cluster, gangs: dict[int, tuple[int, Needs]], placed: dict[int, Workers]) -> None:
    node_of = {worker.id: worker.node for worker in cluster.workers}
    every = [worker for workers in placed.values() for worker in workers]
    assert len(every) == len(set(every))
    for node in cluster.nodes:
        there = [gangs[row][1] for row, workers in placed.items() for each in workers if node_of[each] == node.name]
        assert sum(needs.cpu_cores for needs in there) <= node.cpu_cores
        assert sum(needs.memory_bytes for needs in there) <= node.memory_bytes
    assert all(len(workers) == gangs[row][0] for row, workers in placed.items())


def test_no_node_is_overfull_and_nearly_as_much_is_used_as_could_be() -> None:
    used = best = 0
    for seed in range(INSTANCES):
        cluster, gangs = an_instance(seed)
        placed = packed(cluster, gangs)
        assert_within(cluster, gangs, placed)
        used += sum(map(len, placed.values()))
        best += exact_workers(cluster, gangs)
    assert used >= LEAST_UTILISATION * best, f"{used} workers of {best}"


@pytest.mark.parametrize("seed", range(INSTANCES))
def test_a_gang_that_some_node_holds_gets_the_node_that_has_least_to_spare(seed: int) -> None:
    """Of nodes with as few ranks to spare the one with the fewest free workers, and of these the first."""
    cluster, gangs = an_instance(seed)
    room = Room(cluster, {})
    node_of = {worker.id: room.index_of[worker.node] for worker in cluster.workers}
    for size, needs in gangs.values():
        fits, free = room.ranks("a", needs).copy(), room.count["a"].copy()
        able = [(int(fits[node]), int(free[node]), node) for node in range(len(fits)) if fits[node] >= size]
        workers = room.take("a", needs, size)
        if able:
            assert workers is not None and {node_of[worker] for worker in workers} == {min(able)[2]}
