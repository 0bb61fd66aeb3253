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
    room_beside,
    seen,
    used,
)


@dataclass(frozen=True, slots=True)
class LoadBalancing:
    """Every node has the same capacity, which follows the load: up when it is used up everywhere, down when unused.

    Nodes without room for the tasks' own `needs` are not waited for. `together` tasks start on a node at a time (2 for
    co-located pairs): the capacity goes up and down by as many.
    """

    name: str
    needs: Requirement = field(default_factory=dict)
    together: int = 1

    def __post_init__(self) -> None:
        check_at_least("together", self.together, 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """One step up or down, the same on every node; nodes that joined since come in at the level of the others.

        The paper's listing lowers as soon as one unit is free on all nodes and so never rests on an idle cluster; its
        text, followed here, lowers when more than one is.
        """
        state = cluster.get_cluster_state()
        nodes = eligible(state, beside)
        level = max((seen(state, node, self.name).capacity for node in nodes), default=0)
        free = {node: level - used(seen(state, node, self.name)) for node in nodes}
        able = [node for node in nodes if room_beside(state, node, self.needs, beside) >= self.together]
        if able and all(free[node] < self.together for node in able):
            level += self.together
        elif all(free[node] >= 2 * self.together for node in nodes):
            level -= self.together
        level = max(level, self.together)
        cluster.set_resource(*(Write(self.name, node, level) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)


@dataclass(frozen=True, slots=True)
class StaticLoadBalancing:
    """`tasks` tasks, of which no node gets more than its even part."""

    name: str
    tasks: int

    def __post_init__(self) -> None:
        check_at_least("tasks", self.tasks, 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """The same capacity on each node, rounded up."""
        nodes = eligible(cluster.get_cluster_state(), beside)
        part = -(-self.tasks // max(1, len(nodes)))
        cluster.set_resource(*(Write(self.name, node, part) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)
