"""The two calls by which a library uses a cluster. Every library in this folder is written with these calls alone.

ESCHER (SoCC '22, section 4): an application asks a library for a policy, the library sets resources and returns what
the application's tasks must require besides their own needs. Libraries never see a task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from gavel.errors import InvalidResource, StaleVersion

Requirement = Mapping[str, int]
"""{owner/name: amount}, all of one node."""

UNBOUNDED = 1_000_000_000
"""More than any node can use: the capacity of a name that only selects nodes."""


class Units(Protocol):
    """How many units of a name a node has, and how many of them nobody holds (negative after a shrink)."""

    @property
    def capacity(self) -> int:
        """All units, held or not."""

    @property
    def free(self) -> int:
        """Units that nobody holds."""


State = Mapping[str, Mapping[str, Units]]
"""{node: {owner/name: units}}, one consistent view."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Units as a plain value."""

    capacity: int = 0
    free: int = 0


ABSENT = Seen()


@dataclass(frozen=True, slots=True)
class Write:
    """A name's new capacity on a node (0 deletes). `expect` is what was read: compare and set."""

    name: str
    node: str
    capacity: int
    expect: Units | None = None


class Primitives(Protocol):
    """A cluster as one application uses it; the application, the length of its leases and the time are set already."""

    def set_resource(self, *writes: Write) -> None:
        """Write all of them in one step or, on an error, none; written again, a name's lease is renewed.

        Raises StaleVersion where a write expects other units than there are, NotFound for an unknown node,
        InvalidResource.
        """

    def get_cluster_state(self) -> State:
        """Return every node, with the names on it that have capacity or are held."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """What a task may require instead of the alternatives before it, once it has waited for `after_s` seconds.

    `at_least` must be free on the node too, before the task takes anything, but is not held.
    """

    requires: Requirement
    after_s: float = 0.0
    at_least: Requirement = field(default_factory=dict)


ANYWHERE = (Alternative({}),)


class Library(Protocol):
    """A scheduling policy: the names it sets and what a task asks of them."""

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set the names as the policy requires for the cluster as it is now, and renew their leases.

        Call it before the first task, whenever nodes or tasks come and go, and well within each lease; a second call
        changes nothing. `companions` is what the tasks ask of other libraries: nodes without it are not used.
        """

    def asks(self) -> tuple[Alternative, ...]:
        """Return what a task requires besides its own needs: first what it prefers, then what it may have later."""


def one_of(name: str) -> tuple[Alternative, ...]:
    """Return the one alternative of one unit of `name`."""
    return (Alternative({name: 1}),)


def seen(state: State, node: str, name: str) -> Units:
    """Return the units that the node has of the name; ABSENT if none."""
    return state[node].get(name, ABSENT)


def used(units: Units) -> int:
    """Return the units that tasks hold."""
    return units.capacity - units.free


def nodes_with(state: State, name: str) -> list[str]:
    """Return the nodes on which the name has capacity."""
    return [node for node in state if seen(state, node, name).capacity > 0]


def eligible(state: State, companions: Sequence[Alternative]) -> list[str]:
    """Return the nodes whose capacities, free or held, meet one of the alternatives."""
    return [node for node in state if any(_has(state, node, each.requires) for each in companions)]


def room(state: State, node: str, need: Requirement) -> int:
    """Return how many tasks with this need fit into what the node has free; UNBOUNDED if they need nothing."""
    return min((seen(state, node, name).free // amount for name, amount in need.items()), default=UNBOUNDED)


def room_with(state: State, node: str, need: Requirement, companions: Sequence[Alternative]) -> int:
    """Return how many tasks with this need and one of the `companions` fit into what the node has free."""
    return max(room(state, node, total((need, each.requires))) for each in companions)


def write_if_unchanged(cluster: Primitives, writes: Sequence[Write]) -> None:
    """Write, unless the cluster has changed since it was read: then write nothing, and leave it to the next `apply`."""
    with suppress(StaleVersion):
        cluster.set_resource(*writes)


def total(requirements: Iterable[Requirement]) -> dict[str, int]:
    """Return the sum of each name: what one node must have for all of them together."""
    summed: dict[str, int] = {}
    for name, amount in _amounts(requirements):
        summed[name] = summed.get(name, 0) + amount
    return summed


def most(requirements: Iterable[Requirement]) -> dict[str, int]:
    """Return the largest amount of each name: what one node must have for every one of them alone."""
    largest: dict[str, int] = {}
    for name, amount in _amounts(requirements):
        largest[name] = max(largest.get(name, 0), amount)
    return largest


def check_at_least(field: str, value: float, least: float) -> None:
    """Raise InvalidResource if the value is below `least`."""
    if not value >= least:
        raise InvalidResource(field, f"{value!r} must be at least {least}")


def _has(state: State, node: str, need: Requirement) -> bool:
    return all(seen(state, node, name).capacity >= amount for name, amount in need.items())


def _amounts(requirements: Iterable[Requirement]) -> Iterator[tuple[str, int]]:
    for requirement in requirements:
        yield from requirement.items()
