"""The command of applications for ephemeral resources: one transaction over any number of names and nodes.

The body: `resources`, a list of items {owner, name, capacity, nodes, ttl_s, num_nodes?, expect_generation?, expect?};
and `job_id`: then only the nodes of that job's gang may be named. A generation is twice the command's sequence number,
so it always grows; a deletion is sent with the generation deleted plus one. A renewal keeps the generation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gavel.ephemeral.names import check_requirement, check_resource
from gavel.errors import Conflict, InvalidRequest, InvalidResource, NotFound, StaleVersion, first_few
from gavel.mechanism.cluster.resources import SCHEDULER_OWNER
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import ApplicationResource, EphemeralResource, GangState, JobId, Operation

RESOURCES_MAX = 10_000
"""Names on nodes that applications may have at a time, each node counted."""

TTL_MAX_S = 604_800.0
AUDITED_MAX = 20  # names of an operator's batch that the audit log lists

Key = tuple[str, str, str]
Wanted = dict[Key, ApplicationResource]


def write(tick: Tick, command: Operation) -> Outcome:
    """Create, resize, renew or delete (capacity 0) all that the body names, or nothing; return what was written.

    Raises NotFound for an unknown node, StaleVersion if the resource is not as the caller expects, Conflict
    for a job that holds no node, InvalidResource for a name, capacity, lease or owner that is refused.
    """
    job_id = command.body.get("job_id")
    wanted: Wanted = {each.key: each for each in tick.resources}
    nodes = _nodes_of(tick, job_id)
    written = []
    for item in command.body["resources"]:
        for node in _chosen(tick, wanted, item, nodes, job_id):
            written.append(_write(tick, wanted, item, node, command))
    if len(wanted) > RESOURCES_MAX:
        raise InvalidResource("resources", f"{RESOURCES_MAX} names are the most there may be; delete or wait for some")
    return Outcome(
        result={"resources": [_shown(each) for each in written]},
        resources=tuple(wanted.values()),
        after=None if job_id else {"names": sorted({f"{each.owner}/{each.name}" for each in written})[:AUDITED_MAX]},
    )


def _write(tick: Tick, wanted: Wanted, item: Mapping[str, Any], node: str, command: Operation) -> EphemeralResource:
    key = (item["owner"], item["name"], node)
    before = wanted.get(key)
    _check_expected(item, before, node)
    after = _after(before, item, node, 2 * command.sequence, tick.now_s)
    if not after.capacity:
        wanted.pop(key, None)
    else:
        wanted[key] = ApplicationResource(
            resource=after, job_id=command.body.get("job_id"), held=before.held if before else 0
        )
    return after


def _after(
    before: ApplicationResource | None, item: Mapping[str, Any], node: str, generation: int, now_s: float
) -> EphemeralResource:
    if not 0 < item["ttl_s"] <= TTL_MAX_S:
        raise InvalidResource("ttl_s", f"must be above 0 and at most {TTL_MAX_S:g} seconds")
    after = EphemeralResource(
        name=item["name"],
        node=node,
        capacity=item["capacity"],
        owner=item["owner"],
        lease_expires_at_s=now_s + item["ttl_s"],
        generation=generation,
    )
    if after.owner == SCHEDULER_OWNER:
        raise InvalidResource("owner", f"{SCHEDULER_OWNER!r} owns the scheduler's gangs; choose another owner")
    check_resource(after)
    return (
        replace(after, generation=before.resource.generation) if before and _renews(before.resource, after) else after
    )


def _renews(before: EphemeralResource, after: EphemeralResource) -> bool:
    return before.capacity == after.capacity and before.lease_expires_at_s <= after.lease_expires_at_s


def _check_expected(item: Mapping[str, Any], before: ApplicationResource | None, node: str) -> None:
    generation = before.resource.generation if before else 0
    units = {"capacity": before.resource.capacity, "free": before.free} if before else {"capacity": 0, "free": 0}
    for expected, current in (("expect_generation", generation), ("expect", units)):
        if item.get(expected) is not None and item[expected] != current:
            raise StaleVersion(f"{item['owner']}/{item['name']} on {node} is at {current} now: read it again")


# --- nodes ------------------------------------------------------------------------------------------------------


def _nodes_of(tick: Tick, job_id: JobId | None) -> tuple[str, ...]:
    """The nodes that the caller may write: all of them, or those its gang runs on."""
    if job_id is None:
        return tuple(node.name for node in tick.seen.cluster.nodes)
    alive = (gang for gang in tick.seen.gangs if gang.job_id == job_id and gang.state is GangState.RUNNING)
    workers = {worker for gang in alive for worker in gang.worker_ids}
    held = {worker.node for worker in tick.seen.cluster.workers if worker.id in workers}
    if not held:
        raise Conflict(f"job {job_id} holds no node now; it may set resources while it runs")
    return tuple(node.name for node in tick.seen.cluster.nodes if node.name in held)


def _chosen(
    tick: Tick, wanted: Wanted, item: Mapping[str, Any], nodes: tuple[str, ...], job_id: JobId | None
) -> list[str]:
    """The nodes that the item's node specification names, at most `num_nodes`."""
    spec, num_nodes = item["nodes"], item.get("num_nodes")
    if isinstance(spec, Mapping):
        check_requirement(spec)
        return [node for node in nodes if _fits(tick, wanted, spec, node)][:num_nodes]
    named = [spec] if isinstance(spec, str) else list(spec)
    names = {node.name for node in tick.seen.cluster.nodes}
    for node in named:
        if node not in names:
            raise NotFound(f"there is no node {node!r}; nodes: {first_few(names)}")
        if node not in nodes:
            raise InvalidRequest("nodes", f"job {job_id} does not hold {node}; it holds {', '.join(nodes)}")
    return named[:num_nodes]


def _fits(tick: Tick, wanted: Wanted, needs: Mapping[str, int], node: str) -> bool:
    free = dict(_free(tick, wanted, node))
    return all(free.get(name, 0) >= amount for name, amount in needs.items())


def _free(tick: Tick, wanted: Wanted, node: str) -> Iterator[tuple[str, int]]:
    """Units that nobody holds, of each worker and each application's name on the node."""
    for worker in tick.seen.cluster.workers:
        if worker.node == node:
            name = f"node/worker-{worker.id}"
            yield name, int(not tick.seen.held.get((name, node)))
    for (owner, name, at), each in wanted.items():
        if at == node:
            yield f"{owner}/{name}", each.free


def _shown(resource: EphemeralResource) -> dict[str, Any]:
    names = ("owner", "name", "node", "capacity", "generation", "lease_expires_at_s")
    return {name: getattr(resource, name) for name in names}
