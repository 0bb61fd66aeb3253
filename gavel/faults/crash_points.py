"""Every instant at which a process can die in a scenario: enumerated, not drawn.

A run without a crash counts the acts of the service on the world outside. Then the process dies at each act once in
each way: before it, after it, and after it and again when the process that follows is about to do the next such act.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class ActKind(StrEnum):
    """What the service does to the world outside."""

    COMMIT = "commit"  # of the scheduler
    EXCHANGE = "exchange"  # orders to nodes, and their answers
    LEADERSHIP = "leadership"  # the row of the leader is taken; a beat writes nothing that anybody reads after a crash
    REQUEST = "request"  # of a client, which the API's process commits; a client without an answer asks again


class CrashWay(StrEnum):
    """When the process dies."""

    BEFORE = "before"
    AFTER = "after"
    AFTER_AND_AGAIN = "after_and_again"  # and before the next act of this kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """The `number`-th act of its kind, counted from 1: of those that began, or of those that were done."""

    act: ActKind
    way: CrashWay
    number: int


@dataclass(slots=True)
class CrashCounter:
    """Counts the acts of a run, and says at which the process dies. `struck` is how often it has.

    An act that is refused began, and is not done.
    """

    point: CrashPoint | None = None
    began: Counter[ActKind] = field(default_factory=Counter)
    done: Counter[ActKind] = field(default_factory=Counter)
    struck: int = 0

    def strikes(self, act: ActKind, *, is_done: bool) -> bool:
        """Return True if the process dies now: before the act, or after it (`is_done`)."""
        counts = self.done if is_done else self.began
        counts[act] += 1
        point = self.point
        if point is None or act is not point.act:
            return False
        is_its_side = is_done == (point.way is not CrashWay.BEFORE)
        is_first = self.struck == 0 and is_its_side and counts[act] == point.number
        is_again = self.struck == 1 and point.way is CrashWay.AFTER_AND_AGAIN and not is_done
        self.struck += is_first or is_again
        return is_first or is_again


def crash_points(whole: CrashCounter) -> Iterator[CrashPoint]:
    """Yield every point of a run without a crash."""
    for act in ActKind:
        for way in CrashWay:
            counts = whole.began if way is CrashWay.BEFORE else whole.done
            for number in range(1, counts[act] + 1):
                yield CrashPoint(act=act, way=way, number=number)
