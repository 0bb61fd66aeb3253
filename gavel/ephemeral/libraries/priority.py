"""Priority: a queue gets only what the queues above it leave free (ESCHER, SoCC '22, section 5)."""

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
    room_with,
    seen,
    used,
)
from gavel.errors import InvalidResource


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's name, the number of its waiting tasks, and for how many seconds the oldest of them has waited."""

    name: str
    waiting: int
    oldest_waits_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Priority:
    """Queues, the most urgent first, of tasks with these `needs`. A task that has waited `max_wait_s` goes first."""

    queues: tuple[Queue, ...]
    needs: Requirement
    max_wait_s: float = inf

    def __post_init__(self) -> None:
        check_at_least("needs", len(self.needs), 1)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set each queue's capacity to its running tasks plus those that may start now; unused capacity is removed."""
        state = cluster.get_cluster_state()
        granted = self._grant(state, companions)
        cluster.set_resource(
            *(
                Write(queue.name, node, used(seen(state, node, queue.name)) + granted.get((queue.name, node), 0))
                for queue in self.queues
                for node in state
                if (queue.name, node) in granted or queue.name in state[node]
            )
        )

    def of(self, name: str) -> "PriorityQueue":
        """Return the library of the tasks of one queue. Raises InvalidResource if there is no such queue."""
        if name not in {queue.name for queue in self.queues}:
            raise InvalidResource("name", f"no queue {name!r}; queues: {', '.join(each.name for each in self.queues)}")
        return PriorityQueue(self, name)

    def _grant(self, state: State, companions: Sequence[Alternative]) -> dict[tuple[str, str], int]:
        """Return {(queue, node): tasks that may start}; each task goes to the node with the most room."""
        rooms = {node: max(0, room_with(state, node, self.needs, companions)) for node in state}
        granted: dict[tuple[str, str], int] = {}
        for name in self._order():
            node = max(rooms, key=lambda node: rooms[node], default=None)
            if node is None or not rooms[node]:
                break
            rooms[node] -= 1
            granted[name, node] = granted.get((name, node), 0) + 1
        return granted

    def _order(self) -> list[str]:
        """Return the queue of each waiting task, in order of start. Of an aged queue only one task is put first."""
        aged = [each for each in self.queues if each.waiting and each.oldest_waits_s >= self.max_wait_s]
        aged.sort(key=lambda each: -each.oldest_waits_s)
        rest = [name for each in self.queues for name in [each.name] * (each.waiting - (each in aged))]
        return [each.name for each in aged] + rest


@dataclass(frozen=True, slots=True)
class PriorityQueue:
    """One queue of a `Priority`."""

    priority: Priority
    name: str

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Apply all queues: what one gets depends on the others."""
        self.priority.apply(cluster, companions)

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the queue's name."""
        return one_of(self.name)
