"""Load balancing: no node gets a second task while another still waits for its first (ESCHER, SoCC '22, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Requirement,
    Write,
    check_at_least,
    eligible,
    one_of,
    room_with,
    seen,
    used,
)


@dataclass(frozen=True, slots=True)
class LoadBalancing:
    """Every node has the same capacity, which follows the load: it rises when all is used, and falls when it is unused.

    Nodes without room for the tasks' own `needs` do not keep it from rising. `together` tasks start on a node at a time
    (2 for co-located pairs): the capacity changes by that number.
    """

    name: str
    needs: Requirement = field(default_factory=dict)
    together: int = 1

    def __post_init__(self) -> None:
        check_at_least("together", self.together, 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Raise or lower the capacity by one step on every node; nodes that joined since get the same capacity.

        The paper's listing lowers it as soon as one unit is free on all nodes, and so keeps changing it on an idle
        cluster. The paper's text, followed here, lowers it when more than one unit is free.
        """
        state = cluster.get_cluster_state()
        nodes = eligible(state, companions)
        level = max((seen(state, node, self.name).capacity for node in nodes), default=0)
        free = {node: level - used(seen(state, node, self.name)) for node in nodes}
        able = [node for node in nodes if room_with(state, node, self.needs, companions) >= self.together]
        if able and all(free[node] < self.together for node in able):
            level += self.together
        elif all(free[node] >= 2 * self.together for node in nodes):
            level -= self.together
        level = max(level, self.together)
        cluster.set_resource(*(Write(self.name, node, level) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)


@dataclass(frozen=True, slots=True)
class StaticLoadBalancing:
    """`tasks` tasks, spread evenly: no node gets more than its equal part, rounded up."""

    name: str
    tasks: int

    def __post_init__(self) -> None:
        check_at_least("tasks", self.tasks, 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the same capacity on each node, rounded up."""
        nodes = eligible(cluster.get_cluster_state(), companions)
        part = -(-self.tasks // max(1, len(nodes)))
        cluster.set_resource(*(Write(self.name, node, part) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)
