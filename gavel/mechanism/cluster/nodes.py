"""The states of nodes, the workers on which new leases may be given, and the gangs that a drain stops."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gavel.ports import CordonNode
from gavel.types import (
    Cluster,
    GangSeen,
    GangState,
    JobId,
    NodeState,
    NodeStatus,
    Observation,
    WorkerId,
)

LOST_NODE_KEPT_S = 86_400.0  # how long a node that went away is listed, unless an operator cordoned it

Nodes = Mapping[str, NodeStatus]


def look(statuses: Nodes, seen: Observation) -> dict[str, NodeStatus]:
    """Return each node, new ones included, with its state as of this observation (name -> status), sorted by name."""
    present = {node.name for node in seen.cluster.nodes}
    node_of = {worker.id: worker.node for worker in seen.cluster.workers}
    busy = {node_of.get(worker) for gang in _alive(seen.gangs) for worker in gang.worker_ids}
    after = {}
    for name in sorted(statuses.keys() | present):
        status = statuses.get(name) or NodeStatus(name=name, since_s=seen.observed_at_s)
        state = _state(status, is_present=name in present, is_busy=name in busy)
        if state is not status.state:
            status = replace(status, state=state, since_s=seen.observed_at_s)
        if not _is_forgotten(status, seen.observed_at_s):
            after[name] = status
    return after


def _state(status: NodeStatus, *, is_present: bool, is_busy: bool) -> NodeState:
    if not is_present:
        return NodeState.LOST
    if not status.is_cordoned:
        return NodeState.READY
    if status.drain_by_s is None:
        return NodeState.CORDONED
    return NodeState.DRAINING if is_busy else NodeState.DRAINED


def _is_forgotten(status: NodeStatus, now_s: float) -> bool:
    is_gone = status.state is NodeState.LOST and not status.is_cordoned
    return is_gone and now_s - status.since_s > LOST_NODE_KEPT_S


def usable(cluster: Cluster, nodes: Nodes, pinned: Iterable[WorkerId] = ()) -> Cluster:
    """Return the part of the cluster where new leases may be given; `pinned` workers are left out, too."""
    closed, taken = {name for name, status in nodes.items() if not status.is_schedulable}, set(pinned)
    if not closed and not taken:
        return cluster
    return Cluster(
        nodes=tuple(node for node in cluster.nodes if node.name not in closed),
        workers=tuple(each for each in cluster.workers if each.node not in closed and each.id not in taken),
    )


def ends_at_most_s(worker_ids: Iterable[WorkerId], cluster: Cluster, nodes: Nodes) -> float:
    """Return the instant by which a lease on these workers must end: when a drain of their nodes ends, else +inf."""
    wanted = set(worker_ids)
    drains = {worker.node for worker in cluster.workers if worker.id in wanted} & nodes.keys()
    return min((by_s for name in drains if (by_s := nodes[name].drain_by_s) is not None), default=float("inf"))


def cordons(nodes: Nodes, seen: Observation) -> Iterator[CordonNode]:
    """Return what to tell a cluster that has cordons of its own, so that they are those that operators asked for."""
    for name, is_cordoned in sorted(seen.cordons.items()):
        status = nodes.get(name)
        if status is not None and status.is_cordoned != is_cordoned:
            yield CordonNode(node=name, is_cordoned=status.is_cordoned)


def overdue(seen: Observation, nodes: Nodes, *, lease_grace_s: float) -> Iterator[tuple[JobId, int]]:
    """Return (job, generation) of each gang that has to checkpoint and stop now because its node is drained.

    That is `lease_grace_s` before its end: as long as a gang may take to stop before it is killed.
    """
    if not any(status.drain_by_s is not None for status in nodes.values()):
        return
    for gang in _alive(seen.gangs):
        if ends_at_most_s(gang.worker_ids, seen.cluster, nodes) - lease_grace_s <= seen.observed_at_s:
            yield gang.job_id, gang.generation


def _alive(gangs: Iterable[GangSeen]) -> Iterator[GangSeen]:
    return (gang for gang in gangs if gang.state is not GangState.ENDED)
