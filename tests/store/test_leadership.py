"""Of many scheduler processes only the newest leader commits, on SQLite and on PostgreSQL."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import Engine, create_engine, text

from gavel.errors import LeadershipLost, StaleVersion, StoreUnavailable
from gavel.ports import Changes, JobEvent
from gavel.store.leadership_rules import LeaderRow
from gavel.store.sql import SqlStore
from tests.conftest import IS_FULL
from tests.postgresql import LIMIT_S, emptied
from tests.refusals import refused

Open = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def open_it(request: pytest.FixtureRequest, database: Path) -> Iterator[Open]:
    """Opens one database as another process would."""
    is_sqlite = request.param == "sqlite"
    url = f"sqlite:///{database}" if is_sqlite else emptied(request.getfixturevalue("migrated_postgresql"))
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        opened.append(SqlStore(url))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def lead(store: SqlStore, holder: str = "a") -> bool:
    leadership = store.leadership
    return leadership.take(holder, lease_s=2.0, seen=leadership.current()) is not None


def commit(store: SqlStore) -> int:
    event = JobEvent(job_id="", at_s=1.0, kind="tick", message="")
    return store.commit(store.snapshot().version, Changes(events=(event,)))


def test_a_commit_of_a_leader_that_was_replaced_is_refused_and_writes_nothing(open_it: Open) -> None:
    old, new = open_it(), open_it()
    assert lead(old, "old") and commit(old) == 1
    assert lead(new, "new") and new.leadership.current().holder == "new"
    with pytest.raises(LeadershipLost):
        commit(old)
    with pytest.raises(LeadershipLost):
        old.leadership.beat()
    assert new.snapshot().version == 1 and commit(new) == 2


def test_the_row_says_who_leads_since_how_many_beats_and_for_how_long_without_one(open_it: Open) -> None:
    leader, standby = open_it(), open_it()
    before = standby.leadership.current()
    term = leader.leadership.take("a", lease_s=2.5, seen=before)
    assert term is not None and term.database and term.generation == before.generation + 1
    row = LeaderRow(database=term.database, generation=term.generation, holder="a", beat=before.beat + 1, lease_s=2.5)
    assert standby.leadership.current() == row
    for beat in (before.beat + 2, before.beat + 3):
        leader.leadership.beat()
        assert standby.leadership.current() == replace(row, beat=beat)


def test_a_leader_that_was_followed_reads_that_its_own_generation_is_over(open_it: Open) -> None:
    old, new = open_it(), open_it()
    assert lead(old) and lead(new)
    generation = old.leadership.generation
    sentence = f"generation {generation} does not lead the scheduler any more: another process took over"
    with refused(LeadershipLost, sentence):
        old.leadership.beat()
    with refused(LeadershipLost, sentence):
        commit(old)


@pytest.fixture
def on_sqlite(database: Path) -> Iterator[SqlStore]:
    """A store that leads."""
    store = SqlStore(f"sqlite:///{database}")
    assert lead(store)
    yield store
    store.close()


def test_what_the_database_lacks_is_said_in_one_line(on_sqlite: SqlStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as other:
        other.execute("DROP TABLE leadership")
    missing = "(sqlite3.OperationalError) no such table: leadership"
    with refused(StoreUnavailable, f"the database cannot be read now: {missing}"):
        on_sqlite.leadership.current()
    with refused(StoreUnavailable, f"the database cannot take a write now: {missing}"):
        on_sqlite.leadership.beat()


def test_the_process_that_is_in_the_middle_of_a_write_is_known(on_sqlite: SqlStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as other:
        assert on_sqlite.leadership.blocked_by() is None
        other.execute("BEGIN IMMEDIATE")
        assert on_sqlite.leadership.blocked_by() == os.getpid()
        other.execute("ROLLBACK")
        assert on_sqlite.leadership.blocked_by() is None


def test_a_beat_that_is_on_its_way_keeps_others_from_leading(migrated_postgresql: str) -> None:
    """1. The leader's beat is not committed yet. 2. Another process has seen the one before. 3. It waits, and does not
    lead. On SQLite nothing is read for a write while another write is going on.
    """
    url = emptied(migrated_postgresql)
    leader, standby, engine = SqlStore(url), SqlStore(url), create_engine(url)
    assert lead(leader)
    seen = standby.leadership.current()
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            connection.execute(text("UPDATE leadership SET beat = beat + 1"))
            assert standby.leadership.current() == seen, "who only looks does not wait"
            taken = pool.submit(standby.leadership.take, "b", lease_s=2.0, seen=seen)
            wait_until_one_waits_for_a_lock(engine)
        assert taken.result(LIMIT_S) is None
    leader.leadership.beat()
    for store in (leader, standby):
        store.close()
    engine.dispose()


def wait_until_one_waits_for_a_lock(engine: Engine) -> None:
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        with engine.connect() as connection:
            if connection.execute(waiting).scalar():
                return
    raise AssertionError("nobody waits for a lock")


def test_who_saw_an_older_beat_does_not_come_to_lead(open_it: Open) -> None:
    leader, standby = open_it(), open_it()
    assert lead(leader)
    seen = standby.leadership.current()
    leader.leadership.beat()
    assert standby.leadership.take("b", lease_s=2.0, seen=seen) is None
    assert commit(leader) == 1 and standby.leadership.generation is None


def test_of_two_that_saw_the_same_one_leads(open_it: Open) -> None:
    first, second = open_it(), open_it()
    seen = LeaderRow()
    taken = [store.leadership.take(name, lease_s=2.0, seen=seen) for store, name in ((first, "a"), (second, "b"))]
    assert taken[0] is not None and taken[1] is None


def test_who_resigned_commits_no_more_and_the_next_term_is_of_the_same_database(open_it: Open) -> None:
    store, other = open_it(), open_it()
    assert lead(store)
    store.leadership.resign()
    with pytest.raises(LeadershipLost):
        commit(store)
    before = other.leadership.current()
    term = other.leadership.take("b", lease_s=2.0, seen=before)
    assert term is not None and (term.database, term.generation) == (before.database, before.generation + 1)


def test_beats_are_no_news_to_anybody(open_it: Open) -> None:
    leader, reader = open_it(), open_it()
    assert lead(leader)
    position, snapshot = reader.feed().newest, reader.snapshot()
    leader.leadership.beat()
    assert reader.feed().newest == position and reader.snapshot() is snapshot


def test_a_store_that_never_led_is_alone_and_may_commit(open_it: Open) -> None:
    store = open_it()
    assert commit(store) == 1
    with pytest.raises(StaleVersion):
        store.commit(0, Changes(events=(JobEvent(job_id="", at_s=1.0, kind="tick", message=""),)))


class ManyLeaders(RuleBasedStateMachine):
    """Three processes look, take, beat and commit in any order; a model says who leads."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [SqlStore(self.url) for _ in range(3)]
        self.seen = [store.leadership.current() for store in self.stores]
        self.now = self.seen[0]
        self.leader: int | None = None
        self.commits = self.stores[0].snapshot().version

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    @rule(who=st.integers(0, 2))
    def look(self, who: int) -> None:
        self.seen[who] = self.stores[who].leadership.current()
        assert self.seen[who] == self.now

    @rule(who=st.integers(0, 2))
    def take(self, who: int) -> None:
        term = self.stores[who].leadership.take(f"p{who}", lease_s=1.0, seen=self.seen[who])
        assert (term is not None) == (self.seen[who] == self.now)
        if term is not None:
            assert term.generation == self.now.generation + 1
            self.leader = who
            self.now = self.stores[who].leadership.current()

    @rule(who=st.integers(0, 2))
    def beat(self, who: int) -> None:
        leadership = self.stores[who].leadership
        if leadership.generation is None:
            return
        if who == self.leader:
            leadership.beat()
            self.now = leadership.current()
        else:
            with pytest.raises(LeadershipLost):
                leadership.beat()

    @rule(who=st.integers(0, 2))
    def commit(self, who: int) -> None:
        if self.stores[who].leadership.generation is None:
            return
        if who == self.leader:
            self.commits = commit(self.stores[who])
        else:
            with pytest.raises(LeadershipLost):
                commit(self.stores[who])

    @invariant()
    def only_the_leaders_commits_count(self) -> None:
        assert self.stores[0].snapshot().version == self.commits


def test_in_any_order_only_the_newest_leader_beats_and_commits(database: Path) -> None:
    ManyLeaders.url = f"sqlite:///{database}"
    run_state_machine_as_test(ManyLeaders, settings=settings(max_examples=10 if IS_FULL else 3, stateful_step_count=20))
