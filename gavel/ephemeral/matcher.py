"""The plain scheduler: it matches what gangs require to what nodes have free, and knows nothing else."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gavel.ephemeral.resources import Gang, GangRequest, Member, ResourceTable


@dataclass(frozen=True, slots=True)
class Match:
    """A gang that now holds what it required; `nodes[i]` is where member i goes."""

    gang: Gang
    nodes: tuple[str, ...]


def match(table: ResourceTable, pending: Sequence[GangRequest], now_s: float) -> tuple[Match, ...]:
    """The gangs that could be placed, in the order given; their resources are acquired, all members' or none.

    Members go first fit, the scarcest first: complete when each names its worker, as the scheduler's gangs do, and a
    heuristic when many nodes would do. A gang that holds already is passed over.
    """
    matched = []
    for request in pending:
        nodes = None if table.holds(request.gang) else _place(table, request.members, now_s)
        if nodes is not None:
            placements = [(node, member.requires) for node, member in zip(nodes, request.members, strict=True)]
            table.acquire(request.gang, placements, now_s)
            matched.append(Match(request.gang, nodes))
    return tuple(matched)


class _Attempt:
    """One try to place one gang: what its members would take, and where each kind of member is looking."""

    def __init__(self, table: ResourceTable, now_s: float) -> None:
        self.table = table
        self.now_s = now_s
        self.taken: Counter[tuple[str, str]] = Counter()
        self.candidates: dict[tuple[object, ...], list[str]] = {}

    def node_for(self, member: Member) -> str | None:
        """The first node that still fits. What did not fit once fits no later member of the same kind."""
        key = (member.node, *member.requires.items())
        if key not in self.candidates:
            nodes = (member.node,) if member.node else _rarest(self.table, member.requires)
            self.candidates[key] = list(nodes)[::-1]
        nodes_left = self.candidates[key]
        while nodes_left and not self._fits(member.requires, nodes_left[-1]):
            nodes_left.pop()
        return nodes_left[-1] if nodes_left else None

    def take(self, member: Member, node: str) -> None:
        """Count what the member would hold."""
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
    """Few nodes first, then large needs; the sort is stable, so equal members keep their order."""
    nodes = 1 if member.node else len(_rarest(table, member.requires))
    return nodes, -sum(member.requires.values())


def _rarest(table: ResourceTable, requires: Mapping[str, int]) -> Collection[str]:
    return min((table.nodes_with(full) for full in requires), key=len)
