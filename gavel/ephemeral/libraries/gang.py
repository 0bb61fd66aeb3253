"""Gangs: slots for all tasks or for none, on any matcher (ESCHER, SoCC '22, section 5).

The paper's library submits ghost tasks that hold the slots and publish the gang's name in their place, and rolls back
after a time. Here a pool of slots is itself a name, and one write moves units from the pool to the gang on all nodes,
if they still are as they were read: no ghosts, no partial holds, nothing to roll back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    Alternative,
    Primitives,
    Requirement,
    State,
    Write,
    check_at_least,
    one_of,
    room,
    seen,
    used,
    write_if_unchanged,
)
from gavel.errors import Conflict


@dataclass(frozen=True, slots=True)
class GangPool:
    """{node: slots}, of which gangs take theirs; a task alone asks one unit of the pool.

    Gangs are called `NAME-LABEL`: nothing else may begin with the pool's name and a dash.
    """

    name: str
    slots: Mapping[str, int]

    def of(self, label: str, tasks: int) -> "Gang":
        """The library of the tasks of one gang. Raises InvalidResource."""
        return Gang(self, label, tasks)

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """The pool has the slots that no gang has: those of a gang whose lease ended come back, once its tasks have."""
        state = cluster.get_cluster_state()
        writes = [
            Write(self.name, node, max(0, slots - self._taken(state, node)), seen(state, node, self.name))
            for node, slots in self.slots.items()
            if node in state
        ]
        write_if_unchanged(cluster, writes)

    def asks(self) -> tuple[Alternative, ...]:
        """One unit."""
        return one_of(self.name)

    def _taken(self, state: State, node: str) -> int:
        gangs = (units for name, units in state[node].items() if name.startswith(f"{self.name}-"))
        return sum(max(units.capacity, used(units)) for units in gangs)


@dataclass(frozen=True, slots=True)
class Gang:
    """`tasks` tasks that need a slot each, all at once."""

    pool: GangPool
    label: str
    tasks: int

    def __post_init__(self) -> None:
        check_at_least("tasks", self.tasks, 1)

    @property
    def name(self) -> str:
        """What its tasks require."""
        return f"{self.pool.name}-{self.label}"

    def apply(self, cluster: Primitives, beside: Sequence[Alternative] = ANYWHERE) -> None:
        """All slots, on the fewest nodes, or none. A gang that lost a node gives the rest back and begins again."""
        self.pool.apply(cluster)
        state = cluster.get_cluster_state()
        mine = {node: seen(state, node, self.name) for node in state if self.name in state[node]}
        if any(map(used, mine.values())) or sum(each.capacity for each in mine.values()) == self.tasks:
            write_if_unchanged(cluster, [Write(self.name, node, each.capacity, each) for node, each in mine.items()])
        else:
            write_if_unchanged(cluster, self._exchange(state, self._placement(state, beside)))

    def disband(self, cluster: Primitives) -> None:
        """Give the slots back. Raises Conflict while tasks hold them (wait for their end) or if somebody was faster."""
        state = cluster.get_cluster_state()
        holding = [node for node in state if used(seen(state, node, self.name))]
        if holding:
            raise Conflict(f"tasks of {self.name} still run on {', '.join(holding)}")
        cluster.set_resource(*self._exchange(state, {}))

    def asks(self) -> tuple[Alternative, ...]:
        """One unit of the gang, and nothing physical: the slots stand for it."""
        return one_of(self.name)

    def _placement(self, state: State, beside: Sequence[Alternative]) -> dict[str, int]:
        """{node: tasks}, the roomiest nodes first; empty if there are too few slots."""
        for alternative in beside:
            slots = {node: self._slots(state, node, alternative.requires) for node in state}
            placement: dict[str, int] = {}
            for node in sorted(slots, key=lambda node: -slots[node]):
                placement[node] = min(slots[node], self.tasks - sum(placement.values()))
            if sum(placement.values()) == self.tasks:
                return placement
        return {}

    def _slots(self, state: State, node: str, beside: Requirement) -> int:
        """Free ones, and the gang's own."""
        free = seen(state, node, self.pool.name).free + seen(state, node, self.name).capacity
        return max(0, min(free, room(state, node, beside)))

    def _exchange(self, state: State, placement: Mapping[str, int]) -> list[Write]:
        """What the gang has against `placement`, on all nodes, if they are as they were read."""
        writes = []
        for node in state:
            pool, mine = seen(state, node, self.pool.name), seen(state, node, self.name)
            taken = placement.get(node, 0) - mine.capacity
            if taken:
                writes.append(Write(self.pool.name, node, pool.capacity - taken, pool))
                writes.append(Write(self.name, node, placement.get(node, 0), mine))
        return writes
