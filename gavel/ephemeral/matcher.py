"""The plain matcher: it compares what gangs require with what nodes have free, and uses nothing else."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gavel.ephemeral.resources import Fallback, Gang, GangRequest, Member, ResourceTable


@dataclass(frozen=True, slots=True)
class Match:
    """A gang that now holds what it required; member i runs on `nodes[i]`.

    `choice` is 0 if the gang has what it asked for first, n if it has its n-th fallback.
    """

    gang: Gang
    nodes: tuple[str, ...]
    choice: int = 0


def match(table: ResourceTable, pending: Sequence[GangRequest], now_s: float) -> tuple[Match, ...]:
    """Place the gangs that fit, in the order given, and return them; a gang acquires all that it asked for, or nothing.

    Each member goes to the first node that fits; members that few nodes can run are placed first. This finds every
    possible placement when each member names its worker, as the scheduler's gangs do; with a choice of nodes it is a
    heuristic. A gang that holds resources already is skipped. One that does not fit is tried with its open fallbacks.
    """
    matches = (_match_one(table, request, now_s) for request in pending)
    return tuple(each for each in matches if each)


def _match_one(table: ResourceTable, request: GangRequest, now_s: float) -> Match | None:
    if table.holds(request.gang):
        return None
    for choice, each in enumerate((Fallback(-inf, request.members), *request.fallbacks)):
        members = each.members
        nodes = _place(table, members, now_s) if each.opens_at_s <= now_s else None
        if nodes is not None:
            placements = [(node, member.requires) for node, member in zip(nodes, members, strict=True)]
            table.acquire(request.gang, placements, now_s)
            return Match(request.gang, nodes, choice)
    return None


class _Attempt:
    """One attempt to place one gang: what its members would take, and the nodes left for each kind of member."""

    def __init__(self, table: ResourceTable, now_s: float) -> None:
        self.table = table
        self.now_s = now_s
        self.taken: Counter[tuple[str, str]] = Counter()
        self.candidates: dict[tuple[object, ...], list[str]] = {}

    def node_for(self, member: Member) -> str | None:
        """Return the first node that still fits, or None. A node that did not fit is skipped for equal members."""
        key = (member.node, *member.requires.items(), None, *member.at_least.items())
        if key not in self.candidates:
            nodes = (member.node,) if member.node else _rarest(self.table, member.requires)
            self.candidates[key] = list(nodes)[::-1]
        nodes_left = self.candidates[key]
        while nodes_left and not (
            self._fits(member.requires, nodes_left[-1]) and self._fits(member.at_least, nodes_left[-1])
        ):
            nodes_left.pop()
        return nodes_left[-1] if nodes_left else None

    def take(self, member: Member, node: str) -> None:
        """Count what the member would take of the node."""
        for full, amount in member.requires.items():
            self.taken[full, node] += amount

    def _fits(self, requires: Mapping[str, int], node: str) -> bool:
        return all(
            self.table.free(full, node, self.now_s) - self.taken[full, node] >= amount
            for full, amount in requires.items()
        )


def _place(table: ResourceTable, members: Sequence[Member], now_s: float) -> tuple[str, ...] | None:
    attempt = _Attempt(table, now_s)
    nodes = [""] * len(members)
    for index in sorted(range(len(members)), key=lambda index: _scarcity(table, members[index])):
        node = attempt.node_for(members[index])
        if node is None:
            return None
        attempt.take(members[index], node)
        nodes[index] = node
    return tuple(nodes)


def _scarcity(table: ResourceTable, member: Member) -> tuple[int, int]:
    """Return the sort key of a member: few possible nodes first, then large needs."""
    nodes = 1 if member.node else len(_rarest(table, member.requires))
    return nodes, -sum(member.requires.values())


def _rarest(table: ResourceTable, requires: Mapping[str, int]) -> Collection[str]:
    return min((table.nodes_with(full) for full in requires), key=len)
