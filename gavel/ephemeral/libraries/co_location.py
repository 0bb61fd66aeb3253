"""Co-location: a group of tasks on one node, whichever has room for all of them (ESCHER, SoCC '22, section 5).

To follow a task that runs already, or data, see `data_locality`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Requirement,
    State,
    Write,
    check_at_least,
    nodes_with,
    one_of,
    room,
    seen,
    total,
    used,
    write_if_unchanged,
)


@dataclass(frozen=True, slots=True)
class CoLocation:
    """`tasks` tasks, each with these own `needs`, on one node.

    Submit them as one gang: its needs are then checked and acquired in one step. If other tasks took the room first,
    the name moves to another node, as long as no task of the group has started.
    """

    name: str
    needs: Requirement
    tasks: int

    def __post_init__(self) -> None:
        check_at_least("tasks", self.tasks, 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the name on exactly one node (which the paper's listing does not ensure); on none if no node has room."""
        state = cluster.get_cluster_state()
        here = nodes_with(state, self.name)
        started = [node for node in state if used(seen(state, node, self.name))]
        node = started[0] if started else self._choose(state, companions, here)
        leave = [Write(self.name, each, 0, seen(state, each, self.name)) for each in here if each != node]
        write_if_unchanged(cluster, [*leave, *([Write(self.name, node, self.tasks)] if node else [])])

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)

    def _choose(self, state: State, companions: Sequence[Alternative], here: Sequence[str]) -> str | None:
        """Return the node that has the name if it still has room for all tasks, else the node with the most room."""
        for alternative in companions:
            need = total((self.needs, alternative.requires))
            rooms = {node: room(state, node, need) for node in [*here, *state]}
            fit = [node for node in rooms if rooms[node] >= self.tasks]
            if fit:
                return fit[0] if fit[0] in here else max(fit, key=lambda node: rooms[node])
        return None
