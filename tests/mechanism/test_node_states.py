"""The state of each node from what is there and what operators asked, and what follows for leases and gangs."""

from typing import Any

import pytest

from gavel.mechanism.cluster.nodes import LOST_NODE_KEPT_S, cordons, ends_at_most_s, look, overdue, usable
from gavel.ports import CordonNode
from gavel.types import Cluster, GangSeen, GangState, NodeState, NodeStatus, Observation
from tests.mechanism.world import a_cluster_of_nodes

INF = float("inf")
TWO = a_cluster_of_nodes(n0="fast fast", n1="slow")
ONE = a_cluster_of_nodes(n1="slow")


def a_gang(*workers: str, state: GangState = GangState.RUNNING, job_id: str = "j1") -> GangSeen:
    return GangSeen(job_id=job_id, generation=3, state=state, accelerator_type="fast", worker_ids=workers)


def seen_at(now_s: float, *gangs: GangSeen, cluster: Cluster = TWO, **over: Any) -> Observation:
    return Observation(observed_at_s=now_s, cluster=cluster, gangs=gangs, **over)


def status(name: str, state: NodeState = NodeState.READY, since_s: float = 1.0, **over: Any) -> NodeStatus:
    return NodeStatus(name=name, state=state, since_s=since_s, **over)


def by_name(*statuses: NodeStatus) -> dict[str, NodeStatus]:
    return {each.name: each for each in statuses}


def test_a_node_that_comes_is_ready_from_then_on() -> None:
    before = by_name(status("n1"))
    after = look(before, seen_at(50.0))
    assert list(after.items()) == [("n0", status("n0", since_s=50.0)), ("n1", status("n1"))]
    assert look(after, seen_at(60.0)) == after


def test_a_node_that_goes_is_lost_from_then_on_and_ready_once_it_is_back() -> None:
    lost = look(by_name(status("n0"), status("n1")), seen_at(50.0, cluster=ONE))
    assert lost == by_name(status("n0", NodeState.LOST, 50.0), status("n1"))
    assert look(lost, seen_at(60.0)) == by_name(status("n0", since_s=60.0), status("n1"))


def test_a_lost_node_is_listed_for_a_day_and_longer_if_an_operator_cordoned_it() -> None:
    lost, cordoned = status("n0", NodeState.LOST, 10.0), status("n2", NodeState.LOST, 10.0, is_cordoned=True)
    before = by_name(lost, cordoned, status("n1"))
    assert look(before, seen_at(10.0 + LOST_NODE_KEPT_S, cluster=ONE)) == before
    assert look(before, seen_at(10.1 + LOST_NODE_KEPT_S, cluster=ONE)) == by_name(cordoned, status("n1"))


@pytest.mark.parametrize(
    ("over", "gangs", "state"),
    [
        ({"is_cordoned": True}, [], NodeState.CORDONED),
        ({"is_cordoned": True}, [a_gang("n0-0")], NodeState.CORDONED),
        ({"is_cordoned": True, "drain_by_s": 90.0}, [a_gang("n0-1")], NodeState.DRAINING),
        ({"is_cordoned": True, "drain_by_s": 90.0}, [a_gang("n1-0", "n0-1")], NodeState.DRAINING),
        ({"is_cordoned": True, "drain_by_s": 90.0}, [a_gang("n0-1", state=GangState.WAITING)], NodeState.DRAINING),
        ({"is_cordoned": True, "drain_by_s": 90.0}, [a_gang("n0-1", state=GangState.ENDED)], NodeState.DRAINED),
        ({"is_cordoned": True, "drain_by_s": 90.0}, [a_gang("n1-0"), a_gang("n9-0")], NodeState.DRAINED),
        ({"drain_by_s": 90.0}, [a_gang("n0-0")], NodeState.READY),
    ],
)
def test_a_node_that_is_closed_is_cordoned_draining_or_drained(
    over: dict[str, Any], gangs: list[GangSeen], state: NodeState
) -> None:
    before = by_name(status("n0", NodeState.LOST, **over), status("n1"))
    assert look(before, seen_at(50.0, *gangs))["n0"] == status("n0", state, 50.0, **over)


def test_new_leases_are_given_on_nodes_that_are_open_and_on_workers_that_are_not_pinned() -> None:
    ready = by_name(status("n0"), status("n1"))
    closed = by_name(status("n0", NodeState.DRAINING), status("n1"))
    assert usable(TWO, ready) is TWO
    assert usable(TWO, closed) == ONE
    assert usable(TWO, ready, ["n0-1"]) == Cluster(nodes=TWO.nodes, workers=(TWO.workers[0], TWO.workers[2]))
    assert usable(TWO, closed, ["n1-0", "n0-0"]) == Cluster(nodes=ONE.nodes, workers=())


def test_a_lease_ends_with_the_first_drain_of_its_nodes() -> None:
    nodes = by_name(status("n0", drain_by_s=90.0), status("n1", drain_by_s=80.0), status("n2", drain_by_s=10.0))
    assert ends_at_most_s(["n0-0"], TWO, nodes) == 90.0
    assert ends_at_most_s(["n0-0", "n1-0"], TWO, nodes) == 80.0
    assert ends_at_most_s(["n1-0"], TWO, by_name(status("n1"))) == INF
    assert ends_at_most_s(["n1-0", "n7-0"], TWO, {}) == INF


def test_a_cluster_with_cordons_of_its_own_is_told_those_that_differ() -> None:
    nodes = by_name(status("n0", is_cordoned=True), status("n1"), status("n2", is_cordoned=True))
    seen = seen_at(0.0, cordons={"n2": True, "n1": True, "n0": False, "n9": True})
    assert list(cordons(nodes, seen)) == [
        CordonNode(node="n0", is_cordoned=True),
        CordonNode(node="n1", is_cordoned=False),
    ]
    assert list(cordons(nodes, seen_at(0.0))) == []


def test_gangs_stop_as_long_before_the_end_of_a_drain_as_they_may_take() -> None:
    nodes = by_name(status("n0", drain_by_s=90.0), status("n1"))
    gangs = [
        a_gang("n0-0", job_id="j1"),
        a_gang("n1-0", job_id="j2"),
        a_gang("n0-1", job_id="j3", state=GangState.ENDED),
        a_gang("n0-1", job_id="j4", state=GangState.WAITING),
    ]
    assert list(overdue(seen_at(84.9, *gangs), nodes, lease_grace_s=5.0)) == []
    assert list(overdue(seen_at(85.0, *gangs), nodes, lease_grace_s=5.0)) == [("j1", 3), ("j4", 3)]
    assert list(overdue(seen_at(85.0, *gangs), by_name(status("n0"), status("n1")), lease_grace_s=5.0)) == []
    draining = by_name(status("n0", drain_by_s=90.0), status("n1", drain_by_s=300.0))
    assert list(overdue(seen_at(85.0, *gangs), draining, lease_grace_s=5.0)) == [("j1", 3), ("j4", 3)]
