"""Data locality, and following a task that runs (ESCHER, SoCC '22, section 4, "locality"): go where something is."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    UNBOUNDED,
    Alternative,
    Primitives,
    Write,
    nodes_with,
    one_of,
)


@dataclass(frozen=True, slots=True)
class DataLocality:
    """The name is on the `nodes` that have the data, or run the task to follow, and nowhere else.

    A node that is gone is not replaced, as no other has the data. Give no nodes when the data is invalid.
    """

    name: str
    nodes: tuple[str, ...]

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the name, for any number of tasks, on those of the nodes that exist, and remove it from all others."""
        state = cluster.get_cluster_state()
        stale = [node for node in nodes_with(state, self.name) if node not in self.nodes]
        cluster.set_resource(
            *(Write(self.name, node, 0) for node in stale),
            *(Write(self.name, node, UNBOUNDED) for node in self.nodes if node in state),
        )

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)
