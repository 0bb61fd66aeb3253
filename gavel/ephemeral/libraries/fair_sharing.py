"""Hierarchical fair sharing: nodes divided by weight, level by level (ESCHER, SoCC '22, section 5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite

from gavel.ephemeral.libraries.primitives import (
    ANYWHERE,
    UNBOUNDED,
    Alternative,
    Primitives,
    State,
    Write,
    eligible,
    nodes_with,
    one_of,
    seen,
    used,
)
from gavel.errors import InvalidResource


@dataclass(frozen=True, slots=True)
class Share:
    """A user, whose tasks require `name` (`owner/name`); or, with children, a team, whose name only people read."""

    name: str
    weight: float = 1.0
    children: tuple["Share", ...] = ()

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight > 0):
            raise InvalidResource("weight", f"{self.weight!r} of {self.name} must be finite and above 0")

    def users(self) -> tuple[str, ...]:
        """Return the names of the users in it."""
        return tuple(name for each in self.children for name in each.users()) if self.children else (self.name,)


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Whole nodes for each user in `active`, by weight inside its team, and by the team's weight among active teams.

    The nodes of inactive users are lent to those nearest in the tree until the owners are active again. A borrower then
    loses the name on them at once; its running tasks keep what they hold until they end. A user whose part is less than
    one node is a guest on a node of its team.
    """

    root: Share
    active: frozenset[str]

    def __post_init__(self) -> None:
        for name in sorted(self.active.difference(self.root.users())):
            raise InvalidResource("active", f"no user {name!r}; users: {', '.join(self.root.users())}")

    def of(self, user: str) -> "UserShare":
        """Return the library of one user's tasks. Raises InvalidResource if there is no such user."""
        if user not in self.root.users():
            raise InvalidResource("user", f"no user {user!r}; users: {', '.join(self.root.users())}")
        return UserShare(self, user)

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Set each user's name on its nodes and nowhere else. A user keeps as many of its nodes as its part allows."""
        state = cluster.get_cluster_state()
        nodes = eligible(state, companions)
        granted = _nodes_of(state, nodes, self._divide(self.root, len(nodes)))
        cluster.set_resource(
            *(
                Write(user, node, UNBOUNDED if node in granted.get(user, ()) else 0)
                for user in self.root.users()
                for node in state
                if node in granted.get(user, ()) or seen(state, node, user).capacity
            )
        )

    def _divide(self, share: Share, nodes: int) -> list["_Part"]:
        """Return how many of `nodes` nodes each active user inside `share` gets."""
        if not share.children:
            return [_Part(share.name, nodes)]
        children = [each for each in share.children if self.active.intersection(each.users())]
        counts = _by_weight([each.weight for each in children], nodes)
        return _with_hosts(
            part for child, count in zip(children, counts, strict=True) for part in self._divide(child, count)
        )


@dataclass(frozen=True, slots=True)
class UserShare:
    """One user of a `FairSharing`."""

    sharing: FairSharing
    user: str

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ANYWHERE) -> None:
        """Apply the sharing for all users: what one gets depends on the others."""
        self.sharing.apply(cluster, companions)

    def asks(self) -> tuple[Alternative, ...]:
        """Return one unit of the user's name."""
        return one_of(self.user)


@dataclass(frozen=True, slots=True)
class _Part:
    """How many nodes a user gets; one with none is a guest on a node of its host."""

    user: str
    nodes: int
    host: str = ""


def _by_weight(weights: Sequence[float], nodes: int) -> list[int]:
    """Return whole nodes in proportion to the weights; the largest remainders are rounded up."""
    exact = [weight * nodes / sum(weights) for weight in weights]
    counts = [floor(each) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: counts[index] - exact[index])
    for index in by_remainder[: nodes - sum(counts)]:
        counts[index] += 1
    return counts


def _with_hosts(parts: Iterable[_Part]) -> list[_Part]:
    """Return the parts, users without a node as guests of those in the same team that have one, in turn."""
    shares = list(parts)
    hosts = [part.user for part in shares if part.nodes]
    homeless = [part.user for part in shares if not part.nodes and not part.host]
    guest_of = {user: hosts[index % len(hosts)] for index, user in enumerate(homeless) if hosts}
    return [replace(part, host=guest_of.get(part.user, part.host)) for part in shares]


def _nodes_of(state: State, nodes: Sequence[str], parts: Sequence[_Part]) -> Mapping[str, list[str]]:
    """Return {user: nodes}. Each user keeps its busiest nodes; the others are given out, those without tasks first."""
    granted: dict[str, list[str]] = {}
    left = dict.fromkeys(nodes)
    for part in parts:
        own = [node for node in nodes_with(state, part.user) if node in left]
        own.sort(key=lambda node: -used(seen(state, node, part.user)))
        granted[part.user] = own[: part.nodes]
        left = {node: None for node in left if node not in granted[part.user]}
    users = [part.user for part in parts]
    spare = sorted(left, key=lambda node: -sum(used(seen(state, node, user)) for user in users))
    for part in parts:
        while len(granted[part.user]) < part.nodes:
            granted[part.user].append(spare.pop())
    for part in parts:
        if part.host:
            own = [node for node in granted[part.host] if seen(state, node, part.user).capacity]
            granted[part.user] = (own or granted[part.host])[:1]
    return granted
