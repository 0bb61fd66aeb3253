"""Gangs: slots for all tasks or for none, on any matcher (ESCHER, SoCC '22, section 5).

The paper's library submits placeholder tasks that hold the slots and publish the gang's name in their place, and rolls
back after a timeout. Here a pool of slots is itself a name. One write moves units from the pool to the gang on all
nodes, if they are unchanged since they were read: no placeholders, no partial holds, nothing to roll back.
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
    """A pool of slots, {node: slots}, from which gangs take theirs; a single task requires one unit of the pool.

    Gangs are named `NAME-LABEL`: no other resource may begin with the pool's name and a dash.
    """

    name: str
    slots: Mapping[str, int]

    def of(self, label: str, tasks: int) -> "Gang":
        """Return the library of the tasks of one gang. Raises InvalidResource."""
        return Gang(self, label, tasks)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the pool to the slots that no gang has. Slots of an expired gang return once its tasks have ended."""
        state = cluster.get_cluster_state()
        writes = [
            Write(self.name, node, max(0, slots - self._taken(state, node)), seen(state, node, self.name))
            for node, slots in self.slots.items()
            if node in state
        ]
        write_if_unchanged(cluster, writes)

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the pool."""
        return one_of(self.name)

    def _taken(self, state: State, node: str) -> int:
        gangs = (units for name, units in state[node].items() if name.startswith(f"{self.name}-"))
        return sum(max(units.capacity, used(units)) for units in gangs)


@dataclass(frozen=True, slots=True)
class Gang:
    """`tasks` tasks that need one slot each, all at the same time."""

    pool: GangPool
    label: str
    tasks: int

    def __post_init__(self) -> None:
        check_at_least("tasks", self.tasks, 1)

    @property
    def name(self) -> str:
        """The name that its tasks require."""
        return f"{self.pool.name}-{self.label}"

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Take all slots, on few nodes, or none. A gang that lost a node gives its slots back and takes all anew."""
        self.pool.apply(cluster)
        state = cluster.get_cluster_state()
        mine = {node: seen(state, node, self.name) for node in state if self.name in state[node]}
        if any(map(used, mine.values())) or sum(each.capacity for each in mine.values()) == self.tasks:
            write_if_unchanged(cluster, [Write(self.name, node, each.capacity, each) for node, each in mine.items()])
        else:
            write_if_unchanged(cluster, self._exchange(state, self._placement(state, companions)))

    def disband(self, cluster: Primitives) -> None:
        """Give the slots back. Raises Conflict while tasks hold them, StaleVersion if the slots changed meanwhile."""
        state = cluster.get_cluster_state()
        holding = [node for node in state if used(seen(state, node, self.name))]
        if holding:
            raise Conflict(f"tasks of {self.name} still run on {', '.join(holding)}")
        cluster.set_resource(*self._exchange(state, {}))

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the gang's name; the slots stand for physical resources."""
        return one_of(self.name)

    def _placement(self, state: State, companions: Sequence[Alternative]) -> dict[str, int]:
        """Return {node: tasks}, nodes with the most slots first; empty if there are too few slots."""
        for alternative in companions:
            slots = {node: self._slots(state, node, alternative.requires) for node in state}
            placement: dict[str, int] = {}
            for node in sorted(slots, key=lambda node: -slots[node]):
                placement[node] = min(slots[node], self.tasks - sum(placement.values()))
            if sum(placement.values()) == self.tasks:
                return placement
        return {}

    def _slots(self, state: State, node: str, companions: Requirement) -> int:
        """Return the slots of a node that are free or the gang's own, limited by the companions' requirements."""
        free = seen(state, node, self.pool.name).free + seen(state, node, self.name).capacity
        return max(0, min(free, room(state, node, companions)))

    def _exchange(self, state: State, placement: Mapping[str, int]) -> list[Write]:
        """Return the writes that change the gang's slots to `placement`, valid only if no node has changed since."""
        writes = []
        for node in state:
            pool, mine = seen(state, node, self.pool.name), seen(state, node, self.name)
            taken = placement.get(node, 0) - mine.capacity
            if taken:
                writes.append(Write(self.pool.name, node, pool.capacity - taken, pool))
                writes.append(Write(self.name, node, placement.get(node, 0), mine))
        return writes
