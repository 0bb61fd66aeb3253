"""Names of workers: which a node gets, which it gets again, and what is stored of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.nodes.numbering import Numbering, as_node, as_worker, node_of_workers
from gavel.backends.nodes.protocol import ListedNode, Slot
from gavel.types import Cluster, Lease, Node, RoundPlan, Worker


def a_plan(workers: tuple[str, ...]) -> RoundPlan:
    """A round in which one gang has these workers."""
    lease = Lease(
        job_id="j1",
        generation=1,
        combination=("j1",),
        accelerator_type="a",
        worker_ids=workers,
        round_index=1,
        expires_at_s=9.0,
    )
    return RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=9.0,
        leases=(lease,),
        policy="",
        allocation_digest="",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "workers.json"


def slots(kinds: str) -> list[Slot]:
    """`slots("aab")`: two accelerators of type a and one of type b."""
    return [
        Slot(accelerator_type=kind, resource=f"acc:{kind}", index=kinds[:at].count(kind))
        for at, kind in enumerate(kinds)
    ]


def names(numbering: Numbering, node: str, kinds: str) -> list[str]:
    return list(numbering.workers(node, slots(kinds)))


def stored(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(path.read_text())
    return fields


def test_workers_are_numbered_by_type_in_the_order_of_their_slots(path: Path) -> None:
    numbering = Numbering(path, is_current=True)
    assert numbering.workers("n1", slots("aba")) == dict(zip(["a-0", "b-0", "a-1"], slots("aba"), strict=True))
    assert names(numbering, "n2", "ba") == ["b-1", "a-2"]
    assert numbering.nodes == {"n1", "n2"}
    assert stored(path) == {"nodes": {"n1": {"a": [0, 1], "b": [0]}, "n2": {"b": [1], "a": [2]}}}


def test_a_node_that_comes_back_larger_keeps_its_names_and_gets_more(path: Path) -> None:
    numbering = Numbering(path, is_current=True)
    assert names(numbering, "n1", "a") == ["a-0"]
    assert names(numbering, "n2", "a") == ["a-1"]
    again = Numbering(path, is_current=True)
    assert names(again, "n1", "aaab") == ["a-0", "a-2", "a-3", "b-0"]
    assert names(again, "n1", "aa") == ["a-0", "a-2"]
    assert names(Numbering(path, is_current=True), "n1", "aaa") == ["a-0", "a-2", "a-3"]


def test_nothing_is_written_where_no_name_is_new(path: Path) -> None:
    numbering = Numbering(path, is_current=True)
    names(numbering, "n1", "aa")
    path.unlink()
    names(numbering, "n1", "aa")
    names(numbering, "n1", "a")
    numbering.forget(["n9"])
    assert not path.exists()


def test_numbers_of_a_node_that_is_forgotten_are_given_again_the_lowest_first(path: Path) -> None:
    numbering = Numbering(path, is_current=True)
    for node in ("n1", "n2", "n3"):
        names(numbering, node, "aa")
    numbering.forget(["n2", "n9"])
    assert stored(path) == {"nodes": {"n1": {"a": [0, 1]}, "n3": {"a": [4, 5]}}}
    assert (numbering.nodes, names(numbering, "n4", "aaa")) == ({"n1", "n3"}, ["a-2", "a-3", "a-6"])


def test_two_workers_that_change_places_do_so_for_the_next_service_too(path: Path) -> None:
    numbering = Numbering(path, is_current=True)
    names(numbering, "n1", "aab")
    names(numbering, "n2", "ba")
    names(numbering, "n3", "a")
    numbering.swap("a-1", "a-2")
    for each in (numbering, Numbering(path, is_current=True)):
        assert names(each, "n1", "aab") == ["a-0", "a-2", "b-0"]
        assert names(each, "n2", "ba") == ["b-1", "a-1"]
        assert names(each, "n3", "a") == ["a-3"]


def test_a_type_with_a_dash_in_its_name_is_one_type(path: Path) -> None:
    node_of = {"l4-mig-1": "n1", "l4-mig-0": "n2"}
    numbering = Numbering(path, node_of, is_current=True)
    assert stored(path) == {"nodes": {"n1": {"l4-mig": [1]}, "n2": {"l4-mig": [0]}}}
    numbering.swap("l4-mig-1", "l4-mig-0")
    assert stored(path) == {"nodes": {"n1": {"l4-mig": [0]}, "n2": {"l4-mig": [1]}}}


def test_a_service_without_a_file_names_workers_as_the_store_does(path: Path) -> None:
    """Workers whose node is away keep their numbers from being given to others; other names are not its own."""
    node_of = {"a-1": "n1", "a-0": "n1", "a-2": "", "gpu": "n1", "b-x": "n1"}
    numbering = Numbering(path, node_of, is_current=True)
    assert stored(path) == {"nodes": {"n1": {"a": [1, 0]}, "": {"a": [2]}}}
    assert (names(numbering, "n1", "aa"), names(numbering, "n2", "ab")) == (["a-1", "a-0"], ["a-3", "b-0"])


def test_a_file_counts_only_while_no_other_service_has_led_since(path: Path) -> None:
    names(Numbering(path, is_current=True), "n1", "a")
    node_of = {"a-7": "n1"}
    assert names(Numbering(path, node_of, is_current=True), "n1", "a") == ["a-0"]
    assert names(Numbering(path, node_of, is_current=False), "n1", "a") == ["a-7"]
    assert names(Numbering(path, is_current=True), "n1", "a") == ["a-7"]


def test_nothing_is_written_where_the_store_names_nobody(path: Path) -> None:
    assert Numbering(path, is_current=True).nodes == frozenset()
    assert not path.exists()


def test_the_node_of_a_worker_is_that_of_the_cluster_or_nobody_knows_it() -> None:
    cluster = Cluster(
        nodes=(Node(name="n1"),),
        workers=(
            Worker(id="a-1", node="n1", accelerator_type="a"),
            Worker(id="a-0", node="n1", accelerator_type="a"),
        ),
    )
    plans = [a_plan(("a-0", "a-4")), a_plan(("a-5",))]
    node_of = node_of_workers(cluster, plans)
    assert list(node_of.items()) == [("a-1", "n1"), ("a-0", "n1"), ("a-4", ""), ("a-5", "")]


def test_the_scheduler_sees_all_that_the_cluster_lists_of_a_node_and_its_workers() -> None:
    listed = ListedNode(
        node_id="id", name="n1", cpu_cores=8, memory_bytes=64, region="eu", problem="ignored", labels={"rack": "r1"}
    )
    assert as_node(listed, "no driver") == Node(
        name="n1", cpu_cores=8, memory_bytes=64, region="eu", problem="no driver", labels={"rack": "r1"}
    )
    slot = Slot(accelerator_type="a", resource="GPU", index=3, price_usd_per_hour=2.5, memory_bytes=80)
    assert as_worker("a-3", "n1", slot, shares_core=True) == Worker(
        id="a-3", node="n1", accelerator_type="a", price_usd_per_hour=2.5, shares_core=True, memory_bytes=80
    )
