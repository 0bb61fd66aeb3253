"""The checker gives the answer of an exhaustive search, on small histories of a register."""

import os
from collections.abc import Iterator
from itertools import combinations, permutations
from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linearizability.checker import Operation, is_linearizable

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


def register_step(state: int, operation: Operation) -> Iterator[int]:
    """A register with a compare-and-set, and a write that may do nothing."""
    match operation.name:
        case "write":
            yield operation.argument
        case "maybe":
            yield state
            yield operation.argument
        case "swap":
            old, new = operation.argument
            if not operation.is_answered or operation.result == (state == old):
                yield new if state == old else state
        case _:
            if not operation.is_answered or operation.result == state:
                yield state


def by_brute_force(operations: list[Operation]) -> bool:
    """Whether any order of the answered operations and any of the others explains all, and keeps to the times."""
    answered = [each for each in operations if each.is_answered]
    others = [each for each in operations if not each.is_answered]
    chosen = (part for size in range(len(others) + 1) for part in combinations(others, size))
    return any(
        keeps_times(order) and explains(order, 0) for part in chosen for order in permutations([*answered, *part])
    )


def keeps_times(order: tuple[Operation, ...]) -> bool:
    return all(later.returned_s >= earlier.called_s for at, earlier in enumerate(order) for later in order[at + 1 :])


def explains(order: tuple[Operation, ...], state: Any) -> bool:
    return not order or any(explains(order[1:], new) for new in register_step(state, order[0]))


values = st.integers(0, 2)
calls = st.one_of(
    st.tuples(st.sampled_from(("write", "maybe")), values, st.none()),
    st.tuples(st.just("read"), st.none(), values),
    st.tuples(st.just("swap"), st.tuples(values, values), st.booleans()),
)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    name, argument, result = draw(calls)
    called_s = draw(st.integers(0, 8))
    returned_s = draw(st.one_of(st.just(inf), st.integers(called_s, 9).map(float)))
    return Operation(name=name, called_s=called_s, returned_s=returned_s, argument=argument, result=result)


@settings(max_examples=5000 if IS_FULL else 150)
@given(st.lists(operations(), max_size=6))
def test_the_search_agrees_with_an_exhaustive_one(history: list[Operation]) -> None:
    assert is_linearizable(history, 0, register_step) == by_brute_force(history)


def test_both_answers_come_about() -> None:
    write = Operation(name="write", called_s=0, returned_s=1, argument=1)
    stale = Operation(name="read", called_s=2, returned_s=3, result=0)
    assert not is_linearizable([write, stale], 0, register_step)
    assert is_linearizable([write, Operation(name="read", called_s=0.5, returned_s=3, result=0)], 0, register_step)
    lost = Operation(name="write", called_s=0, argument=1)
    assert is_linearizable([lost, stale], 0, register_step), "without an answer it may come later, or never"
    seen = Operation(name="read", called_s=2, returned_s=3, result=1)
    then = Operation(name="read", called_s=4, returned_s=5, result=0)
    assert not is_linearizable([lost, seen, then], 0, register_step), "but it does not come and go"
