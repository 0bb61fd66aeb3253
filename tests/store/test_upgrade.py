"""A database of the first release, opened by this one: nothing is lost and it works on."""

import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from gavel.errors import KeyReused
from gavel.ports import Changes, JobFilter
from gavel.store.samples import round_record, same, spec
from gavel.store.sql import SqlStore
from gavel.types import JobState, Scope, Tier
from tests.postgresql import Server

FIRST_RELEASE = Path(__file__).parent / "first_release.sql"  # four jobs, two rounds, a tier, a user and a token


@pytest.fixture
def first_release(tmp_path: Path) -> str:
    path = tmp_path / "first.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(FIRST_RELEASE.read_text())
    connection.close()
    return f"sqlite:///{path}"


def test_a_database_of_the_first_release_is_upgraded_with_all_it_holds(first_release: str) -> None:
    store = SqlStore(first_release)
    running, done, queued, cancelling = store.jobs(JobFilter()).jobs[::-1]
    assert (running.state, running.generation, running.steps_done, running.checkpoint) == (
        JobState.LEASED,
        3,
        40,
        "3-40",
    )
    assert running.received_s == {"v100": 0.1 + 0.2} and running.spec == spec(tier="gold", name="job-0")
    assert (done.state, done.steps_done) == (JobState.COMPLETED, 100) and queued.state is JobState.QUEUED
    assert cancelling.cancel_requested and not cancelling.pause_requested
    assert list(store.snapshot().jobs) == [running.id, queued.id, cancelling.id]
    assert store.tiers() == (
        Tier(name="default"),
        Tier(name="gold", weight=3.0, objective="fifo", guarantee=0.5, parent="default", version=2),
    )
    assert store.snapshot().version == 2 and len(store.events(running.id)) == 2
    assert all(same(store.round(index).allocation, round_record(index, running.id).allocation) for index in (1, 2))
    assert {tier.within_user for tier in store.round(1).problem.tiers} == {"equal"}  # as that round was decided
    identity = store.identify(sha256(b"ann's").hexdigest())
    assert identity and (identity.user, identity.scope, identity.tiers) == ("ann", Scope.USER, ("gold", "default"))
    assert [entry.subject for entry in store.audit()] == ["user/ann", "tier/gold", "tier/gold"]
    store.close()


def test_an_upgraded_database_takes_the_next_round_and_knows_its_keys(first_release: str) -> None:
    store = SqlStore(first_release)
    again = store.submit(spec(tier="gold", name="job-2"), key="key-2", body_hash="h", now_s=99.0)
    assert not again.created and again.job.spec.name == "job-2"
    with pytest.raises(KeyReused):
        store.submit(spec(), key="key-2", body_hash="other", now_s=99.0)
    store.commit(2, Changes(round=round_record(3)))
    assert [record.plan.round_index for record in store.snapshot().round_records] == [2, 3]
    assert store.request_pause(again.job.id, is_paused=True, now_s=100.0).pause_requested
    store.close()
    reopened = SqlStore(first_release)
    assert reopened.job(again.job.id).pause_requested
    reopened.close()


@pytest.mark.full
def test_a_postgresql_of_the_first_release_is_upgraded(postgresql: Server) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, text

    url = postgresql.new_database()
    config = Config()
    config.set_main_option("script_location", "gavel.store:migrations")
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(text("INSERT INTO tiers VALUES ('gold', 2, 'fifo', 0.5, NULL, 4)"))
    engine.dispose()
    store = SqlStore(url)
    assert store.tiers()[1] == Tier(name="gold", weight=2, objective="fifo", guarantee=0.5, version=4)
    job = store.submit(spec(tier="gold"), key="k", body_hash="h", now_s=1.0).job
    assert store.snapshot().jobs == {job.id: job}
    store.close()
