"""Objectives: choose the node with the most left of a score, within a factor of two (ESCHER, SoCC '22, section 5).

The paper lists the requirements g, g/2, g/4, …; as printed the first of them is the task's own need, which any node
with room meets. Here each alternative is a threshold that must be free and is not held, from the largest score down,
all open at once: the first threshold that some node reaches is within a factor of two of the best node.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Write,
    check_at_least,
)
from gavel.errors import InvalidResource


@dataclass(frozen=True, slots=True)
class Objective:
    """`scores` is the worth of each node in any unit (memory bandwidth, memory); a task takes `cost` of it.

    The thresholds halve from the largest score down to the cost. Raises InvalidResource.
    """

    name: str
    scores: Mapping[str, int]
    cost: int = 1

    def __post_init__(self) -> None:
        check_at_least("cost", self.cost, 1)
        if not self.scores:
            raise InvalidResource("scores", "give at least one node a score")

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set each existing node's capacity to its score."""
        state = cluster.get_cluster_state()
        cluster.set_resource(*(Write(self.name, node, score) for node, score in self.scores.items() if node in state))

    def asks(self) -> tuple[Alternative, ...]:
        """Return the cost on a node with the largest score left; then with half of that left, and so on."""
        return tuple(Alternative({self.name: self.cost}, at_least={self.name: each}) for each in self._thresholds())

    def _thresholds(self) -> Iterator[int]:
        threshold = max(self.scores.values())
        while threshold > self.cost:
            yield threshold
            threshold //= 2
        yield self.cost
