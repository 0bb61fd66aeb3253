"""Opening a database: fresh, up to date, too new, damaged, not ours."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from gavel.errors import InvalidRequest, StoreUnavailable
from gavel.ports import Changes, JobFilter
from gavel.store.samples import round_record
from gavel.store.schema import REVISIONS, Base
from gavel.store.sql import SqlStore
from tests.builders import a_spec
from tests.store.conftest import OpenStore


def test_the_migrations_make_the_tables_of_the_schema(database: Path) -> None:
    engine = create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_the_schema_lists_every_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "gavel.store:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == REVISIONS


@pytest.mark.full
def test_an_up_to_date_database_opens_without_alembic(database: Path) -> None:
    program = (
        "import sys; from gavel.store.sql import SqlStore\n"
        f"SqlStore('sqlite:///{database}').close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_reopened_database_holds_what_was_acknowledged(open_store: OpenStore) -> None:
    first = open_store()
    job = first.submit(a_spec(), key="k", body_hash="h", now_s=1.0).job
    first.close()
    second = open_store()
    assert second.job(job.id) == job == second.snapshot().jobs[job.id]
    assert not second.submit(a_spec(), key="k", body_hash="h", now_s=2.0).created


def test_a_reopened_database_shows_its_newest_two_rounds_oldest_first(open_store: OpenStore) -> None:
    first = open_store()
    for index in (1, 2, 3):
        first.commit(index - 1, Changes(round=round_record(index)))
    snapshot = open_store().snapshot()
    assert [record.plan.round_index for record in snapshot.round_records] == [2, 3] and snapshot.version == 3


def test_a_database_of_a_newer_gavel_is_refused(database: Path, open_store: OpenStore) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreUnavailable, match="newer Gavel"):
        open_store()


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreUnavailable, match="not Gavel's"):
        SqlStore(f"sqlite:///{path}")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    connection.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gavel.db"
    path.write_bytes(b"these are not the bytes of a database" * 200)
    with pytest.raises(StoreUnavailable, match="not a database"):
        SqlStore(f"sqlite:///{path}")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="unable to open"):
        SqlStore(f"sqlite:///{tmp_path}/missing/gavel.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "gavel.db"])
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="database_url"):
        SqlStore(url)


def test_damaged_pages_are_an_error_never_an_empty_list(database: Path, open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(50):
        store.submit(a_spec(env={"PADDING": "x" * 500}), key=None, body_hash="h", now_s=1.0)
    store.close()
    intact = database.read_bytes()
    database.write_bytes(intact[:4096] + b"\xff" * (len(intact) - 4096))
    with pytest.raises(StoreUnavailable):
        open_store().jobs(JobFilter())


@pytest.mark.parametrize("damaged", ["substr({}, 5)", "'[]'", "'{{'", "'7'"])
@pytest.mark.parametrize("column", ["spec", "progress"])
def test_a_damaged_row_is_an_error_that_names_it(
    column: str, damaged: str, database: Path, open_store: OpenStore
) -> None:
    store = open_store()
    job = store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job
    with sqlite3.connect(database) as connection:
        connection.execute(f"UPDATE jobs SET {column} = {damaged.format(column)}")
    connection.close()
    for read in (store.snapshot, lambda: store.job(job.id), lambda: store.jobs(JobFilter())):
        with pytest.raises(StoreUnavailable, match=job.id):
            read()


def test_a_driver_that_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidRequest, match=r"no driver for postgresql here; try pip install 'gavel\[postgres\]'"):
        SqlStore("postgresql://gavel@/gavel")
    with pytest.raises(InvalidRequest, match="no driver for oracle here"):
        SqlStore("oracle://gavel@/gavel")
