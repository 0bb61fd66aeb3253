"""Of many scheduler processes only the newest leader commits, on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gavel.errors import LeadershipLost, StaleVersion
from gavel.ports import Changes, JobEvent
from gavel.store.leadership import LeaderRow
from gavel.store.sql import SqlStore
from tests.conftest import IS_FULL
from tests.postgresql import emptied

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
