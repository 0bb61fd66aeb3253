"""Both stores keep the promises of the port."""

from collections.abc import Callable

import pytest

from gavel.ports import Changes, Store
from gavel.store.conformance import CHECKS
from gavel.store.memory import MemoryStore
from gavel.store.samples import round_record
from tests.store.conftest import OpenStore

of_each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@of_each_check
def test_the_memory_store_conforms(check: Callable[[Store], None]) -> None:
    check(MemoryStore())


@of_each_check
def test_the_sql_store_conforms(check: Callable[[Store], None], open_store: OpenStore) -> None:
    check(open_store())


@pytest.mark.parametrize("kind", ["memory", "sql"])
def test_only_the_newest_rounds_are_kept(kind: str, open_store: OpenStore) -> None:
    store: Store = MemoryStore(keep_rounds=3) if kind == "memory" else open_store(keep_rounds=3)
    for index in range(1, 8):
        store.commit(index - 1, Changes(round=round_record(index)))
    assert [plan.round_index for plan in store.rounds()] == [7, 6, 5]
    assert len(store.snapshot().rounds) == 2
