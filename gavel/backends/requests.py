"""The requests of gangs to the matcher, and what a running gang already holds."""

from collections.abc import Callable, Iterable

from gavel.ephemeral.names import NODE_OWNER, WORKER_UNITS
from gavel.ephemeral.resources import Gang, GangRequest, Member, ResourceTable
from gavel.errors import Conflict
from gavel.ports import LaunchGang
from gavel.types import WorkerId


def gang_request(instruction: LaunchGang, node_of: Callable[[WorkerId], str | None]) -> GangRequest:
    """Return what each rank requires (half a worker in a packed pair); an unknown worker is waited for."""
    units = WORKER_UNITS if instruction.shares_with is None else 1
    members = (
        Member(requires={instruction.resource: 1, f"node/worker-{worker}": units}, node=node_of(worker))
        for worker in instruction.worker_ids
    )
    return GangRequest(gang=(instruction.job_id, instruction.generation), members=tuple(members))


def hold_again(table: ResourceTable, gang: Gang, members: Iterable[Member], now_s: float) -> None:
    """Mark a running gang's workers as held, and its ephemeral resource unless that has expired."""
    whole = [(each.node, each.requires) for each in members if each.node]
    workers = [
        (node, {name: units for name, units in needs.items() if name.startswith(f"{NODE_OWNER}/")})
        for node, needs in whole
    ]
    for placements in (whole, workers):
        try:
            table.acquire(gang, placements, now_s)
        except Conflict:
            continue  # its resource has expired, or a node is gone
        return
