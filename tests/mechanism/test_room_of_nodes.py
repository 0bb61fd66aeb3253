"""The workers, cores and memory of nodes: what fits, what is taken from where, and what is free again afterwards."""

from typing import Any

import numpy as np
import pytest

from gavel.mechanism.cluster import feasibility as feasibility_module
from gavel.mechanism.cluster.feasibility import MOST_KEPT, Feasibility, Room, overfull, used_by
from gavel.types import NO_NEEDS, Cluster, Needs, Node, Used, Worker
from tests.builders import a_spec


def a_cluster(*nodes: tuple[str, str, dict[str, Any]]) -> Cluster:
    """(name, types of its workers, fields) of each node; workers n0-0, n0-1, .. have 40 bytes each."""
    return Cluster(
        nodes=tuple(Node(name=name, **fields) for name, _, fields in nodes),
        workers=tuple(
            Worker(id=f"{name}-{index}", node=name, accelerator_type=kind, memory_bytes=40)
            for name, kinds, _ in nodes
            for index, kind in enumerate(kinds)
        ),
    )


def ranks(room: Room, name: str = "a", **needs: Any) -> list[int]:
    answer: list[int] = room.ranks(name, Needs(**needs)).tolist()
    return answer


# --- what gangs hold ---


def test_what_gangs_hold_of_a_node_is_the_sum_of_their_ranks() -> None:
    node_of = {"w0": "n0", "w1": "n0", "w2": "n1"}
    one, other = Needs(cpu_cores=2, memory_bytes=10), Needs(cpu_cores=3, memory_bytes=5)
    held = [(("w0", "w1"), one), (("w2", "gone"), other)]
    assert used_by(held, node_of) == {
        "n0": Used(workers=2, cpu_cores=4, memory_bytes=20),
        "n1": Used(workers=1, cpu_cores=3, memory_bytes=5),
    }


def test_two_gangs_on_one_worker_hold_it_once_and_what_both_need() -> None:
    one, other = Needs(cpu_cores=2, memory_bytes=10), Needs(cpu_cores=3, memory_bytes=5)
    assert used_by([(("w0",), one), (("w0",), other)], {"w0": "n0"}) == {
        "n0": Used(workers=1, cpu_cores=5, memory_bytes=15)
    }


# --- what fits ---


def test_as_many_ranks_fit_as_there_are_workers_cores_and_memory_for() -> None:
    room = Room(a_cluster(("n0", "aab", {"cpu_cores": 8, "memory_bytes": 30}), ("n1", "a", {})), {})
    assert ranks(room) == [2, 1]
    assert ranks(room, "b") == [1, 0]
    assert ranks(room, cpu_cores=4) == [2, 1]
    assert ranks(room, cpu_cores=5) == [1, 1]
    assert ranks(room, cpu_cores=9) == [0, 1]
    assert ranks(room, memory_bytes=15) == [2, 1]
    assert ranks(room, memory_bytes=16) == [1, 1]
    assert ranks(room, "c") == [0, 0]


def test_ranks_fit_only_on_the_types_nodes_and_accelerators_that_they_need() -> None:
    cluster = a_cluster(("n0", "ab", {"labels": {"disk": "nvme"}}), ("n1", "a", {"region": "eu"}))
    room = Room(cluster, {})
    assert ranks(room, accelerator_types=("b",)) == [0, 0]
    assert ranks(room, accelerator_memory_bytes=40) == [1, 1]
    assert ranks(room, accelerator_memory_bytes=41) == [0, 0]
    assert ranks(room, node_labels=(("disk", "nvme"),)) == [1, 0]
    assert ranks(room, regions=("eu",)) == [0, 1]


def test_the_smallest_accelerator_of_a_type_speaks_for_its_node() -> None:
    workers = tuple(Worker(id=f"w{size}", node="n0", accelerator_type="a", memory_bytes=size) for size in (80, 40, 60))
    room = Room(Cluster(nodes=(Node(name="n0"),), workers=workers), {})
    assert (ranks(room, accelerator_memory_bytes=40), ranks(room, accelerator_memory_bytes=41)) == ([3], [0])


def test_a_node_that_is_not_listed_has_its_workers_all_the_same() -> None:
    workers = (Worker(id="w0", node="n9", accelerator_type="a"),)
    room = Room(Cluster(nodes=(Node(name="n0"),), workers=workers), {})
    assert ([node.name for node in room.nodes], ranks(room)) == (["n0", "n9"], [0, 1])
    assert room.nodes[1] == Node(name="n9")


def test_what_gangs_use_already_is_not_there_and_a_worker_has_one_core_at_least() -> None:
    cluster = a_cluster(("n0", "aa", {"cpu_cores": 8, "memory_bytes": 30}), ("n1", "aaaa", {"cpu_cores": 2}))
    room = Room(cluster, {"n0": Used(workers=1, cpu_cores=5, memory_bytes=10), "n1": Used(workers=2, cpu_cores=2)})
    assert (room.cores.tolist(), room.memory.tolist()) == ([3.0, 4.0], [20.0, np.inf])
    assert Room(cluster, {}).cores.tolist() == [8.0, 4.0]
    over = Room(cluster, {"n0": Used(workers=1, cpu_cores=9)})
    assert (over.cores.tolist(), ranks(over)) == ([-1.0, 4.0], [0, 4])


def test_nodes_of_which_gangs_hold_too_much_are_named() -> None:
    cluster = a_cluster(
        ("n0", "aa", {"cpu_cores": 4}), ("n1", "aa", {"memory_bytes": 10}), ("n2", "aaaa", {"cpu_cores": 2})
    )
    full = {
        "n0": Used(workers=2, cpu_cores=4),
        "n1": Used(workers=2, cpu_cores=9, memory_bytes=10),
        "n2": Used(workers=4, cpu_cores=4),
    }
    assert list(overfull(cluster, full, {"n0", "n1", "n2"})) == []
    more = {
        "n0": Used(workers=2, cpu_cores=5),
        "n1": Used(workers=1, memory_bytes=11),
        "n2": Used(workers=3, cpu_cores=5),
    }
    assert list(overfull(cluster, more, {"n0", "n1", "n2"})) == ["n0", "n1", "n2"]
    assert list(overfull(cluster, more, {"n1"})) == ["n1"]
    assert list(overfull(cluster, {"n2": more["n2"]}, {"n0", "n1", "n2"})) == ["n2"]


# --- taking and giving back ---


def test_a_gang_takes_the_node_with_least_to_spare_and_its_first_workers() -> None:
    room = Room(a_cluster(("n0", "aaaa", {}), ("n1", "aaa", {}), ("n2", "aa", {})), {})
    assert room.take("a", NO_NEEDS, 2) == ("n2-0", "n2-1")
    assert room.take("a", NO_NEEDS, 1) == ("n1-0",)
    assert room.take("a", NO_NEEDS, 2) == ("n1-1", "n1-2")
    assert (ranks(room), room.take("a", NO_NEEDS, 5)) == ([4, 0, 0], None)


def test_of_nodes_with_as_few_ranks_to_spare_the_one_with_fewest_free_workers_is_taken() -> None:
    room = Room(a_cluster(("n0", "aaaa", {"cpu_cores": 8}), ("n1", "aa", {}), ("n2", "aa", {})), {})
    assert room.take("a", Needs(cpu_cores=4), 2) == ("n1-0", "n1-1")


def test_a_gang_that_no_node_holds_takes_the_fullest_nodes_and_the_rest_from_the_tightest() -> None:
    room = Room(a_cluster(("n0", "aa", {}), ("n1", "aaa", {}), ("n2", "a", {}), ("n3", "aaa", {})), {})
    assert room.take("a", NO_NEEDS, 7) == ("n1-0", "n1-1", "n1-2", "n3-0", "n3-1", "n3-2", "n2-0")
    assert ranks(room) == [2, 0, 0, 0]


def test_what_a_gang_took_is_free_again_once_it_is_given_back() -> None:
    cluster = a_cluster(("n0", "aab", {"cpu_cores": 8, "memory_bytes": 30}))
    room, needs = Room(cluster, {}), Needs(cpu_cores=3, memory_bytes=10)
    assert room.take("a", needs, 2) == ("n0-0", "n0-1")
    assert (room.cores.tolist(), room.memory.tolist(), ranks(room), ranks(room, "b")) == ([2.0], [10.0], [0], [1])
    room.give_back(("n0-0", "n0-1"), needs)
    assert (room.cores.tolist(), room.memory.tolist()) == ([8.0], [30.0])
    assert room.take("a", needs, 1) == ("n0-1",)


def test_a_gang_holds_its_very_workers_if_they_are_free_and_enough_for_it() -> None:
    room = Room(a_cluster(("n0", "aaa", {"cpu_cores": 6}), ("n1", "a", {})), {})
    assert room.hold(("n0-1", "n1-0"), Needs(cpu_cores=2))
    assert (room.free["a"], room.cores.tolist()) == ([["n0-0", "n0-2"], []], [4.0, np.inf])
    for workers, needs in [
        (("n0-1",), NO_NEEDS),
        (("n0-0", "n0-1"), NO_NEEDS),
        (("n0-0", "gone"), NO_NEEDS),
        (("gone", "n0-0"), NO_NEEDS),
        (("gone",), NO_NEEDS),
        (("n0-0", "n0-2"), Needs(cpu_cores=3)),
        (("n0-0",), Needs(accelerator_types=("b",))),
    ]:
        assert not room.hold(workers, needs)
    assert room.free["a"] == [["n0-0", "n0-2"], []]
    assert room.hold(("n0-0", "n0-2"), Needs(cpu_cores=2))
    assert (room.spread(("n0-0", "n1-0")), room.spread(("n0-0", "n0-2"))) == (2, 1)


def test_answers_stay_right_when_other_gangs_come_and_go() -> None:
    room = Room(a_cluster(("n0", "aab", {"cpu_cores": 8, "memory_bytes": 30, "labels": {"x": "y"}})), {})
    asked = [
        ("a", Needs()),
        ("b", Needs()),
        ("c", Needs()),
        ("a", Needs(cpu_cores=3)),
        ("a", Needs(memory_bytes=11)),
        ("a", Needs(memory_bytes=100)),
        ("a", Needs(accelerator_memory_bytes=41)),
        ("a", Needs(accelerator_types=("b",))),
        ("a", Needs(node_labels=(("x", "z"),))),
    ]

    def answers(of: Room) -> list[int]:
        return [int(of.ranks(name, needs)[0]) for name, needs in asked]

    assert answers(room) == [2, 1, 0, 2, 2, 0, 0, 0, 0]
    room.take("b", Needs(cpu_cores=3, memory_bytes=10), 1)
    assert answers(room) == [2, 0, 0, 1, 1, 0, 0, 0, 0]
    room.take("a", Needs(cpu_cores=5), 1)
    assert answers(room) == [0, 0, 0, 0, 0, 0, 0, 0, 0]
    room.give_back(("n0-2",), Needs(cpu_cores=3, memory_bytes=10))
    assert answers(room) == [1, 1, 0, 1, 1, 0, 0, 0, 0]


def test_a_copy_of_a_room_changes_alone() -> None:
    room = Room(a_cluster(("n0", "aa", {"cpu_cores": 8, "memory_bytes": 30})), {})
    assert ranks(room, cpu_cores=2) == [2]
    other = room.copy()
    assert other.take("a", Needs(cpu_cores=2, memory_bytes=5), 1) == ("n0-0",)
    assert (ranks(room, cpu_cores=2), ranks(other, cpu_cores=2)) == ([2], [1])
    assert (room.free, room.cores.tolist(), room.memory.tolist()) == ({"a": [["n0-0", "n0-1"]]}, [8.0], [30.0])
    assert (other.free, other.cores.tolist(), other.memory.tolist()) == ({"a": [["n0-1"]]}, [6.0], [25.0])
    room.take("a", NO_NEEDS, 2)
    assert (room.count["a"].tolist(), other.count["a"].tolist()) == ([0], [1])


def test_a_room_that_was_asked_very_much_still_answers_rightly() -> None:
    room = Room(a_cluster(("n0", "aa", {"cpu_cores": 8})), {})
    for cores in range(1, MOST_KEPT + 3):
        ranks(room, cpu_cores=cores)
    assert ranks(room.copy(), cpu_cores=4) == [2]
    room.take("a", Needs(cpu_cores=3), 1)
    assert [ranks(room, cpu_cores=cores) for cores in (1, 5, 6)] == [[1], [1], [0]]


# --- where jobs can run ---


def test_a_job_can_run_where_its_whole_gang_fits() -> None:
    cluster = a_cluster(("n0", "aab", {"cpu_cores": 4}), ("n1", "ab", {"cpu_cores": 4}))
    where = Feasibility(cluster)
    assert (where.types, dict(where.ranks(NO_NEEDS))) == (("a", "b"), {"a": 3, "b": 2})
    assert dict(where.ranks(Needs(cpu_cores=4))) == {"a": 2, "b": 2}
    assert where.types_of(a_spec(scale_factor=3)) == ("a",)
    assert where.types_of(a_spec(scale_factor=2, cpu_cores=4)) == ("a", "b")
    assert [where.has_place(NO_NEEDS, size) for size in (3, 4)] == [True, False]
    specs = [a_spec(scale_factor=size) for size in (1, 2, 3, 4)]
    assert where.mask(specs).tolist() == [[True, True], [True, True], [True, False], [False, False]]
    different = [a_spec(scale_factor=3, cpu_cores=4), a_spec(scale_factor=3), a_spec(scale_factor=2, cpu_cores=4)]
    assert where.mask(different).tolist() == [[False, False], [True, False], [True, True]]
    assert (where.mask([]).tolist(), where.mask([]).shape) == ([], (0, 2))


def test_what_gangs_use_is_not_for_others() -> None:
    cluster = a_cluster(("n0", "aa", {"cpu_cores": 4}))
    where = Feasibility(cluster, {"n0": Used(workers=1, cpu_cores=4)})
    assert (dict(where.ranks(NO_NEEDS)), where.has_place(NO_NEEDS, 1)) == ({"a": 0}, False)
    room = where.room()
    assert (room.cores.tolist(), where.room() is room) == ([0.0], False)


def test_answers_stay_right_when_more_needs_are_asked_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasibility_module, "MOST_NEEDS", 2)
    where = Feasibility(a_cluster(("n0", "aa", {"cpu_cores": 8})))
    for _ in range(2):
        assert [where.ranks(Needs(cpu_cores=cores))["a"] for cores in (3, 4, 5, 9)] == [2, 2, 1, 0]
    assert len(where._ranks) <= 2
