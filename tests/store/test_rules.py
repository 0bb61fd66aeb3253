"""Ids that sort by time."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.store.memory import MemoryStore
from gavel.store.rules import JobIds
from tests.builders import a_spec


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1e11), max_size=30))
def test_ids_grow_whatever_the_clock_does(instants: list[float]) -> None:
    ids = JobIds()
    made = [ids.next(now_s) for now_s in instants]
    assert all(earlier < later for earlier, later in pairwise(made))
    assert all(len(each) == 16 and each.isalnum() and each == each.lower() for each in made)


def test_ids_of_two_processes_sort_by_time() -> None:
    assert JobIds().next(1.7e9) < JobIds().next(1.7e9 + 0.001) < JobIds().next(1.7e9 + 86_400)


def test_an_id_holds_its_milliseconds_before_its_random_bits() -> None:
    assert JobIds(lambda bits: 0).next(0.001) == "0000000004000000"
    assert JobIds(lambda bits: 2**bits - 1).next(0.0) == "0000000003zzzzzz"


def test_two_simulations_make_the_same_ids() -> None:
    def ids() -> list[str]:
        store = MemoryStore()
        return [store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job.id for _ in range(3)]

    assert ids() == ids()
