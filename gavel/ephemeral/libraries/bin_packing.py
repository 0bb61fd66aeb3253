"""Bin packing: fill the nodes in use before touching another (ESCHER, SoCC '22, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    UNBOUNDED,
    Alternative,
    Primitives,
    Requirement,
    State,
    Write,
    check_at_least,
    nodes_with,
    one_of,
    room,
    total,
)


@dataclass(frozen=True, slots=True)
class BinPacking:
    """The name is on the fullest nodes that together have room for `tasks` more tasks with these `needs`.

    The name is removed from all other nodes, which become empty as their tasks end: the number of nodes in use grows
    and shrinks. A task requires its needs as well as the name; the paper's listing leaves them out.
    """

    name: str
    needs: Requirement
    tasks: int = 1

    def __post_init__(self) -> None:
        check_at_least("needs", len(self.needs), 1)
        check_at_least("tasks", self.tasks, 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the name on the fullest nodes with room, and remove it from the others."""
        state = cluster.get_cluster_state()
        nodes = self._open(state, companions)
        closed = [node for node in nodes_with(state, self.name) if node not in nodes]
        cluster.set_resource(
            *(Write(self.name, node, 0) for node in closed), *(Write(self.name, node, UNBOUNDED) for node in nodes)
        )

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)

    def _open(self, state: State, companions: Sequence[Alternative]) -> list[str]:
        """Return the nodes to fill: least room first; among equals those with the name, so that nothing moves idly."""
        nodes: list[str] = []
        for alternative in companions:
            need = total((self.needs, alternative.requires))
            rooms = {node: room(state, node, need) for node in state}
            fit = [node for node in rooms if rooms[node] > 0]
            open_now = set(nodes_with(state, self.name))
            left = self.tasks
            for node in sorted(fit, key=lambda node: (rooms[node], node not in open_now)):
                if left > 0:
                    nodes.append(node)
                    left -= rooms[node]
            if nodes:
                break
        return nodes
