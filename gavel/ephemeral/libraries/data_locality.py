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

    It is pinned: a node that is gone is not replaced by another, where the data is not. No nodes: the data is invalid.
    """

    name: str
    nodes: tuple[str, ...]

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Any number of tasks may come to those of the nodes that are there; elsewhere the name goes."""
        state = cluster.get_cluster_state()
        stale = [node for node in nodes_with(state, self.name) if node not in self.nodes]
        cluster.set_resource(
            *(Write(self.name, node, 0) for node in stale),
            *(Write(self.name, node, UNBOUNDED) for node in self.nodes if node in state),
        )

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)
