"""Is a history linearizable? The search of Wing and Gong (1993) with the memory of Lowe (2017), as in Porcupine.

Each operation of a history took effect at one instant between its call and its return, if the history is linearizable.
The search puts the operations in an order, one after the other, and goes back where a return comes too early. It
remembers which operations it had ordered and the state that they led to, and does not go there twice.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

State = Hashable
Step = Callable[[Any, "Operation"], Iterable[Any]]
"""(state, operation) -> every state that the operation may lead to with its result; none if it cannot have that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of a client. Without an answer `returned_s` is infinite, and it may never take effect."""

    name: str
    called_s: float
    returned_s: float = inf
    argument: Any = None
    result: Any = None

    @property
    def is_answered(self) -> bool:
        return self.returned_s < inf


@dataclass(slots=True, eq=False)
class _Entry:
    """A call or a return in the order of time, in a list linked both ways."""

    index: int
    is_call: bool
    before: "_Entry | None" = None
    after: "_Entry | None" = None
    matching: "_Entry | None" = None  # of a call: its return, if it has one

    def lift(self) -> None:
        """Take the entry, and its return, out of the list."""
        for entry in filter(None, (self, self.matching)):
            assert entry.before is not None, "the head of the list is never taken out"
            entry.before.after = entry.after
            if entry.after:
                entry.after.before = entry.before

    def put_back(self) -> None:
        """Undo `lift`."""
        for entry in filter(None, (self.matching, self)):
            assert entry.before is not None
            entry.before.after = entry
            if entry.after:
                entry.after.before = entry


def is_linearizable(operations: Sequence[Operation], initial: State, step: Step) -> bool:
    """Return whether some order of the operations explains every result, starting in the state `initial`."""
    head = _listed(operations)
    to_return = sum(each.is_answered for each in operations)
    state, ordered, entry = initial, 0, head.after
    visited: set[tuple[int, Any]] = set()
    path: list[tuple[_Entry, Any]] = []
    while to_return:
        assert entry is not None, "an operation that has returned is still in the list"
        if entry.is_call:
            bit = 1 << entry.index
            new = next(
                (each for each in step(state, operations[entry.index]) if (ordered | bit, each) not in visited), None
            )
            if new is None:
                entry = entry.after
                continue
            visited.add((ordered | bit, new))
            path.append((entry, state))
            state, ordered, to_return = new, ordered | bit, to_return - (entry.matching is not None)
            entry.lift()
            entry = head.after
        else:  # an operation has returned that is not in the order: one of those before it must come elsewhere
            if not path:
                return False
            entry, state = path.pop()
            ordered, to_return = ordered & ~(1 << entry.index), to_return + (entry.matching is not None)
            entry.put_back()  # and the same entry is tried with another of its states, then the next one
    return True


def _listed(operations: Sequence[Operation]) -> _Entry:
    """Return the head of the list of calls and returns; at the same instant calls come first."""
    timed: list[tuple[float, bool, _Entry]] = []
    for index, operation in enumerate(operations):
        call = _Entry(index, True)
        timed.append((operation.called_s, False, call))
        if operation.is_answered:
            call.matching = _Entry(index, False)
            timed.append((operation.returned_s, True, call.matching))
    head = last = _Entry(-1, True)
    for _, _, entry in sorted(timed, key=lambda each: each[:2]):
        last.after, entry.before = entry, last
        last = entry
    return head
