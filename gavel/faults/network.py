"""What lies between services and nodes: the nodes that are listed, the groups that are held, and the messages."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from gavel.backends.nodes.protocol import Group, ListedNode
from gavel.faults.node import SimulatedNode
from gavel.faults.schedule import Schedule

GIVEN_UP_S = 10.0  # seconds without its heartbeat after which the cluster gives a node up
JOINS_WITHIN_S = 8.0  # after a restart of the control plane, each node at an instant of its own


@dataclass(slots=True)
class Weather:
    """What befalls messages to one node: until when (true time) they are late or come twice, and by how much."""

    late_until_s: float = 0.0
    late_by_s: float = 0.0
    twice_until_s: float = 0.0
    twice_after_s: float = 0.0

    def be_late(self, until_s: float, by_s: float) -> None:
        """Let messages be late until then, by up to so many seconds."""
        self.late_until_s, self.late_by_s = until_s, by_s

    def come_twice(self, until_s: float, after_s: float) -> None:
        """Let orders come a second time until then, up to so many seconds later."""
        self.twice_until_s, self.twice_after_s = until_s, after_s


class Network:
    """All nodes of a cluster, and the groups that services have reserved on them."""

    def __init__(self, seed: str, schedule: Schedule, nodes: list[SimulatedNode]) -> None:
        self._chance = random.Random(f"network-{seed}")  # noqa: S311 - not for secrets
        self._schedule = schedule
        self.nodes = nodes
        self.weather = {node.name: Weather() for node in nodes}
        self._groups: dict[str, Group] = {}
        self._silent_until_s = 0.0  # the control plane is down until then
        self._joins_at_s: dict[str, float] = {}  # names of nodes that are not listed before

    # --- nodes ---

    def listed(self, late: Iterable[str] = ()) -> tuple[ListedNode, ...]:
        """Return the nodes as the cluster lists them; those that answer `late` have a problem."""
        names = set(late)
        return tuple(
            node.as_listed("its agent does not answer" if node.name in names else "")
            for node in self.nodes
            if self._is_listed(node)
        )

    def _is_listed(self, node: SimulatedNode) -> bool:
        has_joined = self._schedule.now_s >= self._joins_at_s.get(node.name, 0.0)
        return node.is_up and has_joined and not self._is_given_up(node)

    @property
    def is_silent(self) -> bool:
        """Return True while the control plane answers nobody."""
        return self._schedule.now_s < self._silent_until_s

    def restart_control_plane(self, until_s: float) -> None:
        """Let it be down until then, and forget all: groups are gone, nodes join under other ids with new agents."""
        self._silent_until_s = max(self._silent_until_s, until_s)
        self._groups.clear()
        for node in self.nodes:
            self._joins_at_s[node.name] = self._silent_until_s + self._chance.uniform(0.0, JOINS_WITHIN_S)
            node.join_again()

    def calm(self) -> None:
        """Let the control plane be there, with all nodes, and no message be late or come twice."""
        self._silent_until_s = 0.0
        self._joins_at_s.clear()
        for node in self.nodes:
            self.heal(node)
            self.weather[node.name] = Weather()

    def _is_given_up(self, node: SimulatedNode) -> bool:
        return node.cut_since_s is not None and self._schedule.now_s - node.cut_since_s > GIVEN_UP_S

    def node(self, node_id: str) -> SimulatedNode | None:
        """Return the node that the cluster lists under this id; None if there is none."""
        return next((node for node in self.nodes if node.node_id == node_id and self._is_listed(node)), None)

    def cut(self, node: SimulatedNode) -> None:
        """Cut the node off."""
        if node.cut_since_s is None:
            node.cut_since_s = self._schedule.now_s

    def heal(self, node: SimulatedNode) -> None:
        """Let the node be reached again, under another id if it was given up meanwhile."""
        if self._is_given_up(node):
            node.join_again()
        node.cut_since_s = None

    # --- messages ---

    def delay_s(self, node: SimulatedNode) -> float:
        """Return how long the next message to or from the node is under way."""
        weather = self.weather[node.name]
        is_late = self._schedule.now_s < weather.late_until_s
        return self._chance.uniform(0.0, weather.late_by_s) if is_late else 0.0

    def comes_again_after_s(self, node: SimulatedNode) -> float | None:
        """Return after how many seconds an order to the node comes a second time; None: it does not."""
        weather = self.weather[node.name]
        is_twice = self._schedule.now_s < weather.twice_until_s
        return self._chance.uniform(0.0, weather.twice_after_s) if is_twice else None

    # --- groups ---

    def reserve(self, wanted: Iterable[Group], *, is_whole: bool) -> frozenset[str]:
        """Create and remove groups as a service wants it; return the names of those that are held."""
        by_name = {group.name: group for group in wanted}
        for name in [name for name, group in self._groups.items() if by_name.get(name) != group]:
            if is_whole or name in by_name:
                del self._groups[name]
        for name, group in by_name.items():
            if name not in self._groups and self._fits(group):
                self._groups[name] = group
        return frozenset(name for name in by_name if name in self._groups)

    def held_groups(self) -> frozenset[str]:
        """Return the names of all groups that are held."""
        return frozenset(self._groups)

    def _fits(self, group: Group) -> bool:
        for node_id, resource, units in group.bundles:
            node = self.node(node_id)
            used = sum(
                each[2]
                for other in self._groups.values()
                for each in other.bundles
                if (each[0], each[1]) == (node_id, resource)
            )
            if node is None or used + units > len(node.slots):
                return False
        return True
