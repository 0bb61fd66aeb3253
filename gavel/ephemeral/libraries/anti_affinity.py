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
    """At most `per_node` tasks of the group on a node. The name is the group's own, so groups do not repel each other.

    The paper's groups share one name, which a ghost task then has to hand on.
    """

    name: str
    per_node: int = 1

    def __post_init__(self) -> None:
        check_at_least("per_node", self.per_node, 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """The name on every node, those that joined since included."""
        nodes = eligible(cluster.get_cluster_state(), beside)
        cluster.set_resource(*(Write(self.name, node, self.per_node) for node in nodes))

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)
