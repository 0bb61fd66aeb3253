"""Where a cluster has placed gangs by its own choice: then their workers are those of the nodes that it gave.

A plan names workers, and a worker is an accelerator of some node. Where the cluster chooses nodes, the planned worker
and one of the same type on the chosen node change places, so that the plan stands and the next observation shows where
its gangs are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from gavel.backends.nodes.allocations import Holdings
from gavel.backends.nodes.fleet import Fleet
from gavel.backends.nodes.gang import NodesGang
from gavel.types import EphemeralResource, GangState, WorkerId

Bundles = tuple[tuple[str, str, int], ...]
"""Of each: id of the node, resource, units."""
Swap = tuple[WorkerId, WorkerId]


def follow(
    fleet: Fleet, holdings: Holdings, gangs: Collection[NodesGang], placed: Mapping[str, Bundles], now_s: float
) -> frozenset[str]:
    """Let the workers of each gang be where its group is; return the groups of which that cannot be said yet.

    `placed`: where the groups are that the cluster holds, by name. Raises OSError for names that cannot be stored.
    """
    live = [gang for gang in gangs if gang.state is not GangState.ENDED]
    elsewhere = [
        gang for gang in live if gang.group_name in placed and not _is_at(holdings, gang, placed[gang.group_name])
    ]
    lost = set[str]()
    for gang in elsewhere:
        swaps = _swaps(fleet, gang, placed[gang.group_name], _fixed(holdings, live, placed, gang))
        if swaps is None:
            lost.add(gang.group_name)
            continue
        fleet.swap(swaps)
        moved = {worker for pair in swaps for worker in pair}
        affected = [each for each in live if moved & {*each.instruction.worker_ids}]
        holdings.move(live, [one for each in affected for one in _moved(holdings, fleet, each, now_s)], now_s)
    return frozenset(lost)


def _is_at(holdings: Holdings, gang: NodesGang, bundles: Bundles) -> bool:
    try:
        return _counted(holdings.group(gang).bundles) == _counted(bundles)
    except KeyError:
        return True  # its node has gone: nothing is to be moved


def _counted(bundles: Bundles) -> Counter[tuple[str, str]]:
    counted = Counter[tuple[str, str]]()
    for node, resource, units in bundles:
        counted[node, resource] += units
    return counted


def _fixed(
    holdings: Holdings, live: Iterable[NodesGang], placed: Mapping[str, Bundles], mover: NodesGang
) -> set[WorkerId]:
    """Return the workers that stay: those of gangs that are where they were placed, or run where they were planned."""
    others = [gang for gang in live if gang.group_name != mover.group_name]
    staying = [
        gang
        for gang in others
        if (_is_at(holdings, gang, placed[gang.group_name]) if gang.group_name in placed else gang.parts)
    ]
    return {worker for gang in staying for worker in gang.instruction.worker_ids}


def _swaps(fleet: Fleet, gang: NodesGang, bundles: Bundles, fixed: Collection[WorkerId]) -> list[Swap] | None:
    """Return which workers change places, so that the gang is on these nodes; None if a node has no place for it."""
    names = {view.node.node_id: name for name, view in fleet.nodes.items()}
    left = Counter({(names.get(node, ""), resource): units for (node, resource), units in _counted(bundles).items()})
    moving = []
    for worker in gang.instruction.worker_ids:
        node, slot = fleet.place_of[worker]
        if left[node, slot.resource] > 0:
            left[node, slot.resource] -= 1
        else:
            moving.append(worker)
    own, targets = set(gang.instruction.worker_ids), iter([*left.elements()])
    swaps: list[Swap] = []
    for worker, (node, resource) in zip(moving, targets, strict=False):
        taken = {*fixed, *own, *(partner for _, partner in swaps)}
        partner = next(_free(fleet, node, resource, fleet.place_of[worker][1].accelerator_type, taken), None)
        if partner is None:
            return None
        swaps.append((worker, partner))
    return swaps if len(swaps) == len(moving) else None


def _free(
    fleet: Fleet, node: str, resource: str, accelerator_type: str, taken: Collection[WorkerId]
) -> Iterator[WorkerId]:
    """Yield the workers of a node that may change places with one of the same type."""
    view = fleet.nodes.get(node)
    for worker, slot in view.workers.items() if view is not None else ():
        if worker not in taken and (slot.resource, slot.accelerator_type) == (resource, accelerator_type):
            yield worker


def _moved(holdings: Holdings, fleet: Fleet, gang: NodesGang, now_s: float) -> list[EphemeralResource]:
    """Return the gang's ephemeral resource on each node where the gang is now, with the lease that it had before."""
    owner, _, name = gang.instruction.resource.partition("/")
    before = [each for each in holdings.table.resources(now_s) if (each.owner, each.name) == (owner, name)]
    if not before:
        return []
    units = Counter(fleet.place_of[worker][0] for worker in gang.instruction.worker_ids)
    there = {each.node: each for each in before}
    gone = [replace(each, capacity=0, generation=each.generation + 1) for each in before if each.node not in units]
    new = [replace(before[0], node=node, capacity=count) for node, count in units.items() if node not in there]
    more = [
        replace(each, capacity=units[node], generation=each.generation + 1)
        for node, each in there.items()
        if units[node] > each.capacity
    ]
    return [*gone, *new, *more]
