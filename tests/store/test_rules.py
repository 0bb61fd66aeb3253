"""Ids that sort by time."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.store.memory import MemoryStore
from gavel.store.rules import JobIds, id_before
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
    assert JobIds(lambda bits: 0).next(1.7e9) == "065wzsb800000000"


def test_an_instant_that_no_id_can_hold_counts_as_the_first_or_the_last_that_one_can() -> None:
    assert id_before(-1.0) == id_before(0.0) == "0" * 16
    last = id_before((2**48 - 1) / 1000)
    assert id_before(2**48 / 1000) == id_before(1e12) == last != id_before((2**48 - 2) / 1000)


@given(st.integers(0, 2**48 - 2), st.integers(0, 2**32 - 1))
def test_the_id_before_an_instant_is_above_every_earlier_id_and_above_none_of_that_instant(
    milliseconds: int, random_bits: int
) -> None:
    ids, at_s = JobIds(lambda bits: random_bits), (milliseconds + 0.5) / 1000
    earlier = ids.next(at_s)
    assert id_before(at_s) <= earlier < id_before(at_s + 0.001)


def test_ids_that_are_made_in_one_millisecond_follow_each_other_without_a_gap() -> None:
    ids = JobIds(lambda bits: 0)
    assert [ids.next(0.0) for _ in range(3)] == ["0000000000000000", "0000000000000001", "0000000000000002"]


def test_two_simulations_make_the_same_ids() -> None:
    def ids() -> list[str]:
        store = MemoryStore()
        return [store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job.id for _ in range(3)]

    assert ids() == ids()
