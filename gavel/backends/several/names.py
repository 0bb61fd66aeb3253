"""What nodes and workers of one of several backends are called outside of it: `node-1@eu`.

Two clusters may use the same names. Accelerator types of a region are written in the same way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gavel.ports import CordonNode, Instruction, LaunchGang, PrepareGang, SetResources
from gavel.types import Cluster, EphemeralResource, GangSeen, RoundPlan, RoundRecord, WorkerId
from gavel.types.regions import SEPARATOR


def outer(name: str, region: str) -> str:
    """Return what a node or worker of the region is called outside of its backend."""
    return f"{name}{SEPARATOR}{region}"


def inner(name: str) -> str:
    """Return what the backend itself calls a node or worker."""
    return name.rpartition(SEPARATOR)[0] if SEPARATOR in name else name


def region_of(name: str) -> str:
    """Return the region of a node or worker; "" if its name has none."""
    return name.rpartition(SEPARATOR)[2] if SEPARATOR in name else ""


def outer_cluster(cluster: Cluster, region: str) -> Cluster:
    """Return the cluster of one backend as a region."""
    return Cluster(
        nodes=tuple(replace(each, name=outer(each.name, region), region=region) for each in cluster.nodes),
        workers=tuple(
            replace(each, id=outer(each.id, region), node=outer(each.node, region)) for each in cluster.workers
        ),
    )


def outer_gang(gang: GangSeen, region: str) -> GangSeen:
    """Return what one backend has seen of a gang, with the names of its workers outside of it."""
    return replace(gang, worker_ids=tuple(outer(each, region) for each in gang.worker_ids))


def outer_resources(resources: Iterable[EphemeralResource], region: str) -> tuple[EphemeralResource, ...]:
    """Return the ephemeral resources of one backend, with the names of their nodes outside of it."""
    return tuple(replace(each, node=outer(each.node, region)) for each in resources)


def inner_instruction(instruction: Instruction) -> Instruction:
    """Return an instruction as the backend of its nodes and workers is given it."""
    match instruction:
        case SetResources():
            own = tuple(replace(each, node=inner(each.node)) for each in instruction.resources)
            return replace(instruction, resources=own)
        case LaunchGang():
            return _inner_launch(instruction)
        case PrepareGang():
            return replace(instruction, gang=_inner_launch(instruction.gang))
        case CordonNode():
            return replace(instruction, node=inner(instruction.node))
        case _:
            return instruction


def _inner_launch(instruction: LaunchGang) -> LaunchGang:
    return replace(instruction, worker_ids=tuple(inner(each) for each in instruction.worker_ids))


def inner_nodes(node_of: Mapping[WorkerId, str], region: str) -> dict[WorkerId, str]:
    """Return the nodes by worker of those workers that are in the region, as its own backend calls them."""
    return {inner(worker): inner(node) for worker, node in node_of.items() if region_of(worker) == region}


def inner_records(records: Iterable[RoundRecord], region: str) -> tuple[RoundRecord, ...]:
    """Return the rounds with the leases in one region only, as its own backend calls their workers."""
    return tuple(replace(each, plan=_inner_plan(each.plan, region)) for each in records)


def _inner_plan(plan: RoundPlan, region: str) -> RoundPlan:
    leases = (lease for lease in plan.leases if region_of(lease.worker_ids[0]) == region)
    own = (replace(lease, worker_ids=tuple(inner(each) for each in lease.worker_ids)) for lease in leases)
    return replace(plan, leases=tuple(own))
