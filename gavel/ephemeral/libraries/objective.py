"""Objectives: the node with the most left of what counts, within a factor of two (ESCHER, SoCC '22, section 5).

The paper lists the requirements g, g/2, g/4, …; as printed the first of them is the task's own need, so any node with
room will do. Here each alternative is a threshold that the matcher compares and nobody holds, from the largest score
down, all of them open at once: the first that some node reaches is within a factor of two of the best node.
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
    """`scores` are what each node is worth (memory bandwidth, memory, what you like); a task takes `cost` of its own.

    The thresholds halve from the largest score down to the cost. Raises InvalidResource.
    """

    name: str
    scores: Mapping[str, int]
    cost: int = 1

    def __post_init__(self) -> None:
        check_at_least("cost", self.cost, 1)
        if not self.scores:
            raise InvalidResource("scores", "give at least one node a score")

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Each node that is there has its score."""
        state = cluster.get_cluster_state()
        cluster.set_resource(*(Write(self.name, node, score) for node, score in self.scores.items() if node in state))

    def asks(self) -> tuple[Alternative, ...]:
        """The cost, on a node with so much left; then with half of that, and so on."""
        return tuple(Alternative({self.name: self.cost}, at_least={self.name: each}) for each in self._thresholds())

    def _thresholds(self) -> Iterator[int]:
        threshold = max(self.scores.values())
        while threshold > self.cost:
            yield threshold
            threshold //= 2
        yield self.cost
