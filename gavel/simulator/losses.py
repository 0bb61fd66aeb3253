"""The nodes that a lean simulation takes away and gives back."""

from collections import Counter, deque
from collections.abc import Sequence
from math import inf

from gavel.mechanism.cluster.placement import Layout
from gavel.simulator.outcome import NodeOutage
from gavel.types import WorkerId


class Losses:
    """The outages of a run, in order; `away` has the workers of the nodes that are away."""

    def __init__(self, outages: Sequence[NodeOutage], layout: Layout) -> None:
        begins = [(each.from_s, 1, each.node) for each in outages]
        ends = [(each.until_s, -1, each.node) for each in outages if each.until_s < inf]
        self._changes = deque(sorted([*begins, *ends]))
        self._lost: Counter[str] = Counter()  # by how many outages each node is away
        self._layout = layout
        self.away: frozenset[WorkerId] = frozenset()

    @property
    def next_s(self) -> float:
        """Return when the next node goes or comes back; +inf if none does."""
        return self._changes[0][0] if self._changes else inf

    def passed(self, now_s: float) -> bool:
        """Let what is due by `now_s` happen. Return True if anything was."""
        if self.next_s > now_s:
            return False
        while self.next_s <= now_s:
            _, change, node = self._changes.popleft()
            self._lost[node] += change
        away = {node for node, count in self._lost.items() if count > 0}
        self.away = frozenset(worker for worker, node in self._layout.node_of.items() if node in away)
        return True
