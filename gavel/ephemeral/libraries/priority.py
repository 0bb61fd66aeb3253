"""Priority: queues of which a lower one gets only what the higher ones leave (ESCHER, SoCC '22, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Requirement,
    State,
    Write,
    check_at_least,
    one_of,
    room_beside,
    seen,
    used,
)
from gavel.errors import InvalidResource


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's name, how many of its tasks wait, and for how long the first has."""

    name: str
    waiting: int
    oldest_waits_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Priority:
    """Queues, the most urgent first, of tasks with these `needs`. One that has waited for `max_wait_s` goes first."""

    queues: tuple[Queue, ...]
    needs: Requirement
    max_wait_s: float = inf

    def __post_init__(self) -> None:
        check_at_least("needs", len(self.needs), 1)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """Each queue's capacity is what runs plus what may start now; what it did not use is taken back."""
        state = cluster.get_cluster_state()
        granted = self._grant(state, beside)
        cluster.set_resource(
            *(
                Write(queue.name, node, used(seen(state, node, queue.name)) + granted.get((queue.name, node), 0))
                for queue in self.queues
                for node in state
                if (queue.name, node) in granted or queue.name in state[node]
            )
        )

    def of(self, name: str) -> "PriorityQueue":
        """The library of the tasks of one queue. Raises InvalidResource if there is no such queue."""
        if name not in {queue.name for queue in self.queues}:
            raise InvalidResource("name", f"no queue {name!r}; queues: {', '.join(each.name for each in self.queues)}")
        return PriorityQueue(self, name)

    def _grant(self, state: State, beside: Sequence[Alternative]) -> dict[tuple[str, str], int]:
        """{(queue, node): tasks that may start}, the roomiest node first."""
        rooms = {node: max(0, room_beside(state, node, self.needs, beside)) for node in state}
        granted: dict[tuple[str, str], int] = {}
        for name in self._order():
            node = max(rooms, key=lambda node: rooms[node], default=None)
            if node is None or not rooms[node]:
                break
            rooms[node] -= 1
            granted[name, node] = granted.get((name, node), 0) + 1
        return granted

    def _order(self) -> list[str]:
        """The queue of each waiting task in turn. Of an aged queue one task goes first, not all of it."""
        aged = [each for each in self.queues if each.waiting and each.oldest_waits_s >= self.max_wait_s]
        aged.sort(key=lambda each: -each.oldest_waits_s)
        rest = [name for each in self.queues for name in [each.name] * (each.waiting - (each in aged))]
        return [each.name for each in aged] + rest


@dataclass(frozen=True, slots=True)
class PriorityQueue:
    """One queue of a `Priority`."""

    priority: Priority
    name: str

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """All queues at once: they compete."""
        self.priority.apply(cluster, beside)

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)
