"""The SQL store conforms to all ports, the memory store to those that a simulation needs."""

from collections.abc import Callable

import pytest

from gavel.ports import ApiStore, Changes, RecordStore, RequestStore, RetentionStore, SchedulerStore
from gavel.store.conformance import API_CHECKS, SIMULATION_CHECKS
from gavel.store.memory import MemoryStore
from gavel.store.samples import SimulationStore, WholeStore, round_record
from gavel.store.sql import SqlStore
from tests.store.conftest import OpenStore

of_each_check = pytest.mark.parametrize("check", SIMULATION_CHECKS, ids=lambda check: check.__name__)


@of_each_check
def test_the_memory_store_conforms(check: Callable[[SimulationStore], None]) -> None:
    check(MemoryStore())


@pytest.mark.full("commands_are_refused_when_too_many_wait")
@of_each_check
def test_the_sql_store_conforms(check: Callable[[SimulationStore], None], open_store: OpenStore) -> None:
    check(open_store())


@pytest.mark.parametrize("check", API_CHECKS, ids=lambda check: check.__name__)
def test_the_sql_store_conforms_to_the_api_s_port(check: Callable[[WholeStore], None], open_store: OpenStore) -> None:
    check(open_store())


@pytest.mark.parametrize("kind", ["memory", "sql"])
def test_only_the_newest_rounds_are_kept(kind: str, open_store: OpenStore) -> None:
    store: SimulationStore = MemoryStore(keep_rounds=3) if kind == "memory" else open_store(keep_rounds=3)
    for index in range(1, 8):
        store.commit(index - 1, Changes(round=round_record(index)))
    assert [plan.round_index for plan in store.rounds()] == [7, 6, 5]
    assert len(store.snapshot().round_records) == 2


def members(*ports: type) -> set[str]:
    return {name for port in ports for name in dir(port) if not name.startswith("_")}


def test_the_scheduler_s_port_is_small_and_no_store_has_calls_that_no_port_names() -> None:
    assert members(SchedulerStore) == {"snapshot", "commit", "job", "predictions"}
    assert members(MemoryStore) == members(SchedulerStore, RequestStore, RecordStore)
    own = {"leadership", "database_bytes"}
    assert members(SqlStore) - members(SchedulerStore, ApiStore, RetentionStore) <= own
