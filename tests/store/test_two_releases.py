"""A newer release upgrades the database while services of this one are open on it: they write nothing more."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from gavel.errors import StoreUnavailable
from gavel.ports import Changes, JobEvent
from gavel.store.database import exclude_writers
from gavel.store.schema import REVISIONS
from gavel.store.sql import SqlStore
from tests.builders import a_spec
from tests.postgresql import emptied

NEWER = "UPDATE alembic_version SET version_num = '9999'"
Execute = Callable[[str], None]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, database: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{database}" if is_sqlite else emptied(request.getfixturevalue("migrated_postgresql"))


@pytest.fixture
def execute(url: str) -> Iterator[Execute]:
    """Executes a statement as the migration of another release would; what it changed is set back afterwards."""
    engine = create_engine(url)

    def run(statement: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(statement))

    with engine.connect() as connection:
        before = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    yield run
    run(f"UPDATE alembic_version SET version_num = '{before}'")
    engine.dispose()


@pytest.fixture
def old(url: str) -> Iterator[SqlStore]:
    """A store of this release, which leads."""
    store = SqlStore(url)
    assert store.leadership.take("old", lease_s=2.0, seen=store.leadership.current())
    yield store
    store.close()


def commits(store: SqlStore) -> int:
    return store.commit(
        store.snapshot().version, Changes(events=(JobEvent(job_id="", at_s=1, kind="tick", message=""),))
    )


def test_an_older_release_writes_nothing_and_does_not_lead_on(old: SqlStore, execute: Execute) -> None:
    """The leader commits nothing and shows no life, so that the newer release follows it; clients are told why."""
    version, beat = commits(old), old.leadership.current().beat
    execute(NEWER)
    with pytest.raises(StoreUnavailable, match="a newer Gavel has upgraded"):
        commits(old)
    with pytest.raises(StoreUnavailable, match="a newer Gavel has upgraded"):
        old.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    with pytest.raises(StoreUnavailable, match="a newer Gavel has upgraded"):
        old.leadership.beat()
    assert (old.snapshot().version, old.leadership.current().beat) == (version, beat) and not old.snapshot().jobs


def test_a_database_that_was_put_back_is_written_again(old: SqlStore, url: str, execute: Execute) -> None:
    before = SqlStore(url)
    execute(NEWER)
    with pytest.raises(StoreUnavailable):
        before.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    execute(f"UPDATE alembic_version SET version_num = '{REVISIONS[-1]}'")
    assert before.submit(a_spec(), key="k", body_hash="h", now_s=1.0).created
    before.close()


@pytest.mark.small("sqlite")
def test_a_write_that_waits_for_a_migration_is_refused_after_it(old: SqlStore, url: str) -> None:
    """Else what an older release began to write before the migration would be committed into the newer tables."""
    migrating = create_engine(url)
    before = old.leadership.current()
    with ThreadPoolExecutor(1) as pool, migrating.connect() as connection:
        with connection.begin():
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            exclude_writers(connection)
            waiting = pool.submit(old.submit, a_spec(), key="k", body_hash="h", now_s=1.0)
            assert not wait([waiting], timeout=0.5).done
            connection.execute(text(NEWER))
        with pytest.raises(StoreUnavailable, match="a newer Gavel has upgraded"):
            waiting.result(timeout=30)
        with connection.begin():
            connection.execute(text(f"UPDATE alembic_version SET version_num = '{REVISIONS[-1]}'"))
    migrating.dispose()
    assert old.leadership.current() == before and not old.snapshot().jobs
