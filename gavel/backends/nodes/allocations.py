"""Which gang holds which worker and ephemeral resource: table and matcher of `gavel.ephemeral` over the nodes."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gavel.backends.gang import GangKey
from gavel.backends.nodes.fleet import Fleet
from gavel.backends.nodes.gang import NodesGang
from gavel.backends.nodes.protocol import Group
from gavel.backends.requests import gang_request, hold_again
from gavel.ephemeral.matcher import match
from gavel.ephemeral.names import WORKER_UNITS
from gavel.ephemeral.resources import GangRequest, ResourceTable
from gavel.errors import NotFound, StaleVersion
from gavel.ports import LaunchGang
from gavel.types import EphemeralResource, GangState, WorkerId


class Holdings:
    """The table, updated as nodes come and go. `kept`: the resources that an earlier service set."""

    def __init__(self, fleet: Fleet, kept: Iterable[EphemeralResource], cluster_name: str) -> None:
        self._cluster_name = cluster_name
        self._fleet = fleet
        self._kept = list(kept)
        self._nodes: dict[str, tuple[str, ...]] = {}  # name -> workers
        self.table = ResourceTable()

    def set_resources(self, resources: Iterable[EphemeralResource], now_s: float) -> bool:
        """Set the resources; return False, and write nothing, for stale ones or if a node has gone meanwhile."""
        try:
            self.table.set_resources(resources, now_s=now_s)
        except (StaleVersion, NotFound):
            return False
        return True

    def match(self, gangs: Sequence[NodesGang], now_s: float) -> set[GangKey]:
        """Match the gangs and return those that hold what they require from now on."""
        return {
            matched.gang for matched in match(self.table, [self.request(gang.instruction) for gang in gangs], now_s)
        }

    def request(self, instruction: LaunchGang) -> GangRequest:
        """Return what the gang's ranks require."""
        return gang_request(instruction, self._node_of)

    def missing(self, gang: NodesGang, now_s: float, delays: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return why the gang waits; `delays` has what the cluster says of groups that it has not reserved."""
        if self.table.holds(gang.key):
            units = ", ".join(f"{count} {resource}" for _, resource, count in self.group(gang).bundles)
            why = delays.get(gang.group_name, "others may hold them")
            return f"{self._cluster_name} has not reserved {gang.group_name} ({units}) yet: {why}"
        return self.table.missing(self.request(gang.instruction), now_s)

    def groups(self, gangs: Sequence[NodesGang]) -> tuple[Group, ...]:
        """Return the groups that must exist: of all running and matched gangs, one for a packed pair."""
        names, until_s = self.names_of_groups(gangs), dict[str, float]()
        for gang in gangs:
            if gang.key in names:
                name = names[gang.key]
                until_s[name] = max(gang.lease_boottime_s, until_s.get(name, 0.0))
        groups = (self.group(gang) for gang in gangs if names.get(gang.key) == gang.group_name)
        return tuple(replace(group, until_boottime_s=until_s[group.name]) for group in groups)

    def names_of_groups(self, gangs: Sequence[NodesGang]) -> dict[GangKey, str]:
        """Return the group that reserves each gang's workers: its own, or that of its partner on the same workers."""
        name_of: dict[frozenset[WorkerId], str] = {}
        wanting = [gang for gang in gangs if self._wants_group(gang)]
        for gang in sorted(wanting, key=lambda gang: not gang.parts):  # a running gang keeps its own group
            name_of.setdefault(frozenset(gang.instruction.worker_ids), gang.group_name)
        return {gang.key: name_of[frozenset(gang.instruction.worker_ids)] for gang in wanting}

    def group(self, gang: NodesGang) -> Group:
        """Return the gang's group: on each of its nodes as many units as the gang has ranks there."""
        units: Counter[tuple[str, str]] = Counter()
        for worker in gang.instruction.worker_ids:
            node, slot = self._fleet.place_of[worker]
            units[(node, slot.resource)] += 1
        ids = {name: view.node.node_id for name, view in self._fleet.nodes.items()}
        bundles = ((ids.get(node, node), resource, count) for (node, resource), count in units.items())
        return Group(
            name=gang.group_name,
            bundles=tuple(bundles),
            tier=gang.instruction.tier,
            cpu_cores=gang.instruction.cpu_cores,
            memory_bytes=gang.instruction.memory_bytes,
            image=gang.instruction.image,
        )

    def hold(self, gang: NodesGang, now_s: float) -> None:
        """Mark a running gang's workers as held, and its ephemeral resource unless that has expired."""
        self.table.release(gang.key)
        there = [each for each in self.request(gang.instruction).members if each.node in self._nodes]
        hold_again(self.table, gang.key, there, now_s)

    def update(self, gangs: Collection[NodesGang], now_s: float) -> None:
        """Take the nodes that there are into the table; running gangs there hold their workers again."""
        here = {name: tuple(view.workers) for name, view in self._fleet.nodes.items() if view.workers}
        for name in self._nodes.keys() - here.keys():
            self.table.remove_node(name)
        changed = {name for name, workers in here.items() if self._nodes.get(name) != workers}
        for name in sorted(changed):
            self.table.add_node(name, {f"worker-{worker}": WORKER_UNITS for worker in here[name]})
        self._nodes = here
        if changed:
            self.set_resources([each for each in self._kept if each.node in changed], now_s)
            self._kept = [each for each in self._kept if each.node not in changed]
            for gang in gangs:
                if gang.state is GangState.RUNNING:
                    self.hold(gang, now_s)

    def move(self, gangs: Iterable[NodesGang], resources: Iterable[EphemeralResource], now_s: float) -> None:
        """Take that workers have changed places: gangs hold theirs where they are now, with these resources."""
        holding = [gang for gang in gangs if self.table.holds(gang.key)]
        for gang in holding:
            self.table.release(gang.key)
        self.update((), now_s)
        self.set_resources(resources, now_s)
        for gang in holding:
            self.hold(gang, now_s)

    def _wants_group(self, gang: NodesGang) -> bool:
        is_placed = all(worker in self._fleet.place_of for worker in gang.instruction.worker_ids)
        return is_placed and gang.state is not GangState.ENDED and (bool(gang.parts) or self.table.holds(gang.key))

    def _node_of(self, worker: str) -> str | None:
        place = self._fleet.place_of.get(worker)
        return place[0] if place else None
