"""Anti-affinity: tasks of a group that do not share a node (ESCHER, SoCC '22, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Write,
    check_at_least,
    eligible,
    one_of,
)


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """At most `per_node` tasks of the group on a node. Each group has its own name, so groups do not repel each other.

    In the paper all groups share one name, which a placeholder task has to pass on.
    """

    name: str
    per_node: int = 1

    def __post_init__(self) -> None:
        check_at_least("per_node", self.per_node, 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the name on every node, also on nodes that joined since."""
        nodes = eligible(cluster.get_cluster_state(), companions)
        cluster.set_resource(*(Write(self.name, node, self.per_node) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the name."""
        return one_of(self.name)
