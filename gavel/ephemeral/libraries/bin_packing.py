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

    All others are closed, so that they empty as their tasks end: the subset shrinks as well as it grows. A task asks
    its needs besides the name, which the paper's listing drops.
    """

    name: str
    needs: Requirement
    tasks: int = 1

    def __post_init__(self) -> None:
        check_at_least("needs", len(self.needs), 1)
        check_at_least("tasks", self.tasks, 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Open the fullest nodes with room, close the rest."""
        state = cluster.get_cluster_state()
        nodes = self._open(state, beside)
        closed = [node for node in nodes_with(state, self.name) if node not in nodes]
        cluster.set_resource(
            *(Write(self.name, node, 0) for node in closed), *(Write(self.name, node, UNBOUNDED) for node in nodes)
        )

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)

    def _open(self, state: State, beside: Sequence[Alternative]) -> list[str]:
        """Least room first; of equals those already open, so that an idle cluster rests."""
        nodes: list[str] = []
        for alternative in beside:
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
