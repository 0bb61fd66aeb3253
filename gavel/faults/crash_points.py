"""Every instant at which a process of the service can die in a scenario: enumerated, not drawn.

A run without a crash counts the commits and the exchanges with nodes. Then each is struck once, in each way: before the
commit, after it, after it and again at the restart, and in an exchange, after the nodes have their orders.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class CrashWhere(StrEnum):
    """Where the process dies."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    AFTER_COMMIT_AND_AGAIN = "after_commit_and_again"  # and before the first commit of the process that follows
    IN_EXCHANGE = "in_exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """The `number`-th instant of its kind, counted from 1."""

    where: CrashWhere
    number: int


@dataclass(slots=True)
class CrashCounter:
    """Counts the instants of a run, and says at which the process dies. `struck` is how often it has."""

    point: CrashPoint | None = None
    counts: Counter[str] = field(default_factory=Counter)
    struck: int = 0

    def strikes(self, at: str) -> bool:
        """Return True if the process dies at this instant (`before_commit`, `after_commit` or `in_exchange`)."""
        self.counts[at] += 1
        point = self.point
        if point is None:
            return False
        is_first = at == _kind(point.where) and self.counts[at] == point.number
        is_again = point.where is CrashWhere.AFTER_COMMIT_AND_AGAIN and self.struck == 1 and at == "before_commit"
        self.struck += is_first or is_again
        return is_first or is_again


def crash_points(counts: Counter[str]) -> Iterator[CrashPoint]:
    """Yield every point of a run in which so many instants were counted."""
    for where in CrashWhere:
        for number in range(1, counts[_kind(where)] + 1):
            yield CrashPoint(where=where, number=number)


def _kind(where: CrashWhere) -> str:
    return "after_commit" if where is CrashWhere.AFTER_COMMIT_AND_AGAIN else where.value
