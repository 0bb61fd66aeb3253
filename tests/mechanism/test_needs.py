"""A job runs, and is measured, only where its user allows it, and no node is ever beyond its cores or memory."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.cluster.feasibility import Feasibility, Room
from gavel.mechanism.cluster.unmet_needs import unmet_need
from gavel.mechanism.planning.problem import problem_from
from gavel.types import Cluster, GangState, JobState, Needs, Node, Tier, Worker
from tests.builders import a_job, a_spec
from tests.mechanism.world import World

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
ALLOWED = {
    (): {"fast", "slow"},
    ("fast",): {"fast"},
    ("!fast",): {"slow"},
    ("fast", "slow"): {"fast", "slow"},
}
LABELS = ({}, {"disk": "nvme"}, {"disk": "nvme", "zone": "a"})


def a_cluster_with(*nodes: tuple[str, int, int, int, dict[str, str]]) -> Cluster:
    """(type, workers, cores, memory of an accelerator, labels) of each node; a node has 10 bytes for each core."""
    named = [(f"n{index}", *node) for index, node in enumerate(nodes)]
    return Cluster(
        nodes=tuple(
            Node(name=name, cpu_cores=cores, memory_bytes=10 * cores, labels=labels)
            for name, _, _, cores, _, labels in named
        ),
        workers=tuple(
            Worker(id=f"{name}-{index}", node=name, accelerator_type=kind, memory_bytes=memory)
            for name, kind, count, _, memory, _ in named
            for index in range(count)
        ),
    )


clusters = st.lists(
    st.tuples(
        st.sampled_from(["fast", "slow"]),
        st.integers(1, 4),
        st.integers(1, 8),
        st.sampled_from([0, 40, 80]),
        st.sampled_from(LABELS),
    ),
    min_size=1,
    max_size=4,
).map(lambda nodes: a_cluster_with(*nodes))
specs = st.fixed_dictionaries(
    {
        "scale_factor": st.sampled_from([1, 1, 2]),
        "cpu_cores": st.sampled_from([1, 1, 2, 4]),
        "memory_bytes": st.sampled_from([0, 0, 10, 30]),
        "accelerator_types": st.sampled_from([(), (), *ALLOWED]),
        "accelerator_memory_bytes": st.sampled_from([0, 0, 40, 80]),
        "node_labels": st.sampled_from(LABELS),
        "preemptible": st.sampled_from([True, True, True, False]),
    }
)


def violations(world: World) -> Iterator[str]:
    """What is wrong with the gangs that are there now, told without the code under test."""
    cluster = world.backend.whole
    nodes, workers = {each.name: each for each in cluster.nodes}, {each.id: each for each in cluster.workers}
    on_node = Counter(worker.node for worker in cluster.workers)
    stated, memory = Counter[str](), Counter[str]()
    for gang in world.backend.seen.gangs:
        if gang.state is GangState.ENDED:
            continue
        spec = world.job(gang.job_id).spec
        for worker in (workers[each] for each in gang.worker_ids):
            node, name = nodes[worker.node], worker.accelerator_type
            if name not in ALLOWED[spec.accelerator_types]:
                yield f"{gang.job_id} on {name}"
            if (
                worker.memory_bytes < spec.accelerator_memory_bytes
                or not spec.node_labels.items() <= node.labels.items()
            ):
                yield f"{gang.job_id} on {worker.id} of {node}"
            stated[worker.id] += spec.cpu_cores if spec.cpu_cores > 1 else 0
            memory[node.name] += spec.memory_bytes
    cores = Counter[str]()
    for name, count in stated.items():  # one core is what a worker comes with, for one job or the two that share it
        cores[workers[name].node] += max(1, count)
    for name, node in nodes.items():
        if cores[name] > max(node.cpu_cores, on_node[name]) or memory[name] > node.memory_bytes:
            yield f"{node} holds gangs of {cores[name]} cores and {memory[name]} bytes"


@settings(max_examples=300 if FULL else 30)
@given(cluster=clusters, wanted=st.lists(specs, max_size=12))
def test_where_many_jobs_can_run_is_where_each_of_them_can(cluster: Cluster, wanted: list[dict[str, Any]]) -> None:
    """Jobs that need the same are looked up once, whether their needs are one object or equal ones."""
    feasibility, asked = Feasibility(cluster), [a_spec(**spec) for spec in wanted]
    each = [[name in feasibility.types_of(spec) for name in feasibility.types] for spec in asked]
    copies = [replace(spec.needs) for spec in asked]
    assert feasibility.mask(asked).tolist() == each
    assert feasibility.mask_of(copies, [spec.scale_factor for spec in asked]).tolist() == each


@settings(max_examples=300 if FULL else 30)
@given(cluster=clusters, wanted=st.lists(specs, max_size=12), data=st.data())
def test_what_fits_is_kept_right_while_gangs_come_and_go(
    cluster: Cluster, wanted: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Kept answers are those of a room that has seen none before; copies do not touch each other."""
    room, asked = Room(cluster, {}), [a_spec(**spec) for spec in wanted]
    held: list[tuple[tuple[str, ...], Needs]] = []
    for spec in asked:
        before = room.copy()
        kept = {name: before.ranks(name, spec.needs).tolist() for name in ("fast", "slow")}
        taken = room.take(data.draw(st.sampled_from(["fast", "slow"])), spec.needs, spec.scale_factor)
        held += [(taken, spec.needs)] if taken else []
        if held and data.draw(st.booleans()):
            room.give_back(*held.pop())
        fresh = Room(cluster, {})
        assert all(fresh.hold(workers, needs) for workers, needs in held)
        for other in asked:
            for name in ("fast", "slow"):
                assert room.ranks(name, other.needs).tolist() == fresh._ranks(name, other.needs).tolist()
        assert kept == {name: before.ranks(name, spec.needs).tolist() for name in kept}


@pytest.mark.parametrize("over", [{}, {"planner": "published"}, {"space_sharing": True}], ids=str)
@settings(max_examples=150 if FULL else 3, phases=(Phase.explicit, Phase.generate))
@given(cluster=clusters, wanted=st.lists(specs, min_size=1, max_size=8 if FULL else 5), stated=st.booleans())
def test_nothing_runs_where_it_may_not_and_no_node_is_overfull(
    over: dict[str, Any], cluster: Cluster, wanted: list[dict[str, Any]], stated: bool
) -> None:
    """Unknown speeds are profiled, short jobs leave workers to be filled in the middle of a round."""
    world = World(cluster=cluster, **over)
    ids = []
    for index, spec in enumerate(wanted):
        claims = {"throughput_steps_per_s": {"fast": 10.0, "slow": 5.0}} if stated else {}
        ids.append(world.submit(40 + 30 * index, **spec, **claims))
    world.run_until_s(1.0)
    for at_s in range(5, 60 if FULL else 30, 5):
        assert not [*violations(world)]
        world.run_until_s(float(at_s))
    feasibility = Feasibility(cluster)
    assert {world.job(each).state for each in ids if not feasibility.types_of(world.job(each).spec)} <= {
        JobState.QUEUED
    }


@pytest.mark.full
def test_two_hundred_jobs_of_fifty_users_never_fill_a_node_beyond_what_it_has() -> None:
    """Twelve nodes of three shapes; at every tick of ten rounds, and all that can run end well."""
    shapes = (("fast", 4, 16, 80, LABELS[1]), ("fast", 2, 4, 40, LABELS[2]), ("slow", 8, 8, 40, LABELS[0]))
    world, draw = World(cluster=a_cluster_with(*shapes * 4)), random.Random(5)
    feasibility, ids = Feasibility(world.backend.whole), list[str]()
    for index in range(200):
        spec = {
            "scale_factor": draw.choice([1, 1, 2, 4]),
            "cpu_cores": draw.choice([1, 1, 2, 4, 8]),
            "memory_bytes": draw.choice([0, 0, 10, 30]),
            "accelerator_types": draw.choice([(), (), *ALLOWED]),
            "accelerator_memory_bytes": draw.choice([0, 0, 40, 80]),
            "node_labels": draw.choice(LABELS),
        }
        if feasibility.types_of(a_spec(**spec)):
            ids.append(world.submit(20 + index, user=f"u{index % 50}", **spec))
    assert len(ids) > 100
    for at_s in range(1, 101):
        world.run_until_s(float(at_s))
        assert not [*violations(world)], at_s
    assert sum(world.job(each).state is JobState.COMPLETED for each in ids) > len(ids) / 2


def test_a_job_goes_to_the_nodes_with_its_label_though_a_gang_without_one_came_first() -> None:
    """1. An unlabelled job takes the only labelled worker. 2. A job that needs it comes: the other one moves."""
    plain, labelled = ("fast", 1, 4, 0, {}), ("fast", 1, 4, 0, {"disk": "nvme"})
    world = World(cluster=a_cluster_with(labelled, plain), price_moves=False)
    first = world.submit(10_000, throughput_steps_per_s={"fast": 10.0})
    world.run_until_s(1.0)
    taken = world.leases_of(first)[-1].worker_ids
    needs = {"node_labels": {"disk": "nvme"}} if taken == ("n0-0",) else {"accelerator_types": ["fast"]}
    second = world.submit(10_000, throughput_steps_per_s={"fast": 10.0}, **needs)
    world.run_until_s(25.0)
    assert {world.job(each).state for each in (first, second)} == {JobState.LEASED}
    assert taken == ("n0-0",) and world.leases_of(second)[-1].worker_ids == ("n0-0",)


def test_jobs_that_want_the_same_nodes_take_turns() -> None:
    world = World(cluster=a_cluster_with(("fast", 2, 4, 0, {})))
    ids = [world.submit(100_000, cpu_cores=3, throughput_steps_per_s={"fast": 10.0}) for _ in range(2)]
    world.run_until_s(40.0)
    held = [sum(world.job(each).received_s.values()) for each in ids]
    assert min(held) >= 10, held


def test_what_a_job_needs_is_a_zero_of_the_matrix() -> None:
    cluster = a_cluster_with(("fast", 2, 8, 80, {"disk": "nvme"}), ("slow", 2, 4, 40, {}))
    wanted = [
        ({}, [True, True]),
        ({"accelerator_types": ("slow",)}, [False, True]),
        ({"accelerator_types": ("!slow",)}, [True, False]),
        ({"accelerator_memory_bytes": 41}, [True, False]),
        ({"node_labels": {"disk": "nvme"}}, [True, False]),
        ({"cpu_cores": 5}, [True, False]),
        ({"cpu_cores": 4, "scale_factor": 2}, [True, False]),
        ({"memory_bytes": 41}, [True, False]),
    ]
    problem = problem_from(
        [a_job(f"j{index}", spec=spec) for index, (spec, _) in enumerate(wanted)],
        feasibility=Feasibility(cluster),
        tiers={"gold": Tier(name="gold")},
        matrix=ReconciledThroughputs().matrix,
        now_s=0.0,
        round_duration_s=10.0,
        pair_rates=None,
        warm_start={},
    )
    assert (problem.throughput_steps_per_s[:, 0] > 0).tolist() == [expected for _, expected in wanted]


@pytest.mark.parametrize(
    ("spec", "field", "would_do"),
    [
        ({"accelerator_types": ("!fast", "!slow")}, "accelerator_types", "It could run on fast, slow."),
        ({"accelerator_memory_bytes": 100}, "accelerator_memory_bytes", "At most 80 would do."),
        ({"node_labels": {"disk": "tape"}}, "node_labels", "Nodes have disk=nvme."),
        ({"node_labels": {"zone": "a"}}, "node_labels", "Nodes have the labels disk."),
        ({"cpu_cores": 9}, "cpu_cores", "At most 8 would do."),
        (
            {"memory_bytes": 50, "scale_factor": 2},
            "memory_bytes",
            "At most 40 would do.",
        ),
    ],
    ids=str,
)
def test_what_can_run_nowhere_is_told_its_field_and_what_would_do(
    spec: dict[str, Any], field: str, would_do: str
) -> None:
    cluster = a_cluster_with(("fast", 2, 8, 80, {"disk": "nvme"}), ("slow", 2, 4, 40, {}))
    unmet = unmet_need(a_spec(**spec), Feasibility(cluster))
    assert unmet is not None and (unmet.field, unmet.would_do) == (field, would_do)


needs = st.builds(
    Needs,
    accelerator_types=st.lists(st.sampled_from(["a", "b", "!a", "!b", "!c"]), max_size=3, unique=True).map(tuple),
    cpu_cores=st.integers(1, 4),
    memory_bytes=st.integers(0, 4),
    accelerator_memory_bytes=st.integers(0, 4),
)


@settings(max_examples=100)
@given(one=needs, other=needs, name=st.sampled_from(["a", "b", "c"]))
def test_two_jobs_on_one_worker_need_what_both_need(one: Needs, other: Needs, name: str) -> None:
    both = one.colocated_with(other)
    assert both.allows_type(name) == (one.allows_type(name) and other.allows_type(name))
    assert both.memory_bytes == one.memory_bytes + other.memory_bytes
    worker = Worker(id="w", node="n", accelerator_type=name, memory_bytes=2)
    fits = one.accelerator_memory_bytes + other.accelerator_memory_bytes <= worker.memory_bytes
    assert both.allows_worker(worker) == (both.allows_type(name) and fits)


@pytest.mark.parametrize("over", [{"planner": "published"}, {"space_sharing": True}], ids=str)
def test_where_jobs_that_may_not_be_stopped_hold_every_worker_planning_goes_on(over: dict[str, Any]) -> None:
    world = World(cluster=a_cluster_with(("fast", 2, 4, 0, {})), **over)
    speeds = {"fast": 10.0}
    holders = [world.submit(400, preemptible=False, throughput_steps_per_s=speeds) for _ in range(2)]
    world.run_until_s(5.0)
    waits = world.submit(40, throughput_steps_per_s=speeds)
    world.run_until_s(25.0)
    assert {world.job(each).state for each in holders} == {JobState.LEASED}
    world.run_until_s(80.0)
    assert world.job(waits).state is JobState.COMPLETED
