"""Maintenance of a database: a backup, a check of everything it holds, an upgrade to this Gavel's tables."""

import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import URL, Connection, create_engine, select, text
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import GavelError, InvalidRequest, StoreUnavailable
from gavel.store import codec, queries
from gavel.store.database import checked_url, open_database, stored_revision
from gavel.store.schema import REVISIONS, JobRow, RoundRow
from gavel.types import RoundRecord

ROWS_A_READ = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a check; without faults, everything can be read."""

    revision: str | None
    jobs: int = 0
    rounds: int = 0
    faults: tuple[str, ...] = ()


def backup(url: str, path: Path) -> Report:
    """Copy a SQLite database as of one instant, while it is in use, and return the check of the copy.

    Raises InvalidRequest for another kind of database or a path that exists, StoreUnavailable.
    """
    place = checked_url(url)
    if place.get_backend_name() != "sqlite":
        address = place.set(drivername="postgresql", password=None).render_as_string()
        command = f"pg_dump --format=custom --file={shlex.quote(str(path))} {shlex.quote(address)}"
        raise InvalidRequest("database_url", f"PostgreSQL has its own: {command}")
    if path.exists():
        raise InvalidRequest("path", f"{path} is there already; name a new file")
    if not path.resolve().parent.is_dir():
        raise InvalidRequest("path", f"there is no folder {path.resolve().parent}")
    _check_file(place)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # what it holds is not for everybody
        _copy(place, path)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{place.database} cannot be copied to {path}: {error}") from error
    return check(f"sqlite:///{path.resolve()}")


def _copy(place: URL, path: Path) -> None:
    """Copy a SQLite database into an empty file, which goes if that fails. Raises sqlite3.Error."""
    try:
        with closing(sqlite3.connect(str(place.database))) as connection:
            connection.execute("VACUUM INTO ?", (str(path),))
    except sqlite3.Error:
        path.unlink()
        raise


def check(url: str) -> Report:
    """Read everything as of one instant; write nothing. Raises StoreUnavailable for the database of another program."""
    with _looking(url) as (connection, revision):
        damage = tuple(_damage(connection))
        if damage or revision != REVISIONS[-1]:
            return Report(revision=revision, faults=(*damage, *_outdated(revision)))
        return _contents(connection, revision)


def outdated(url: str) -> str:
    """Return what is to be done with tables that are not this Gavel's; empty if they are. Raises StoreUnavailable."""
    with _looking(url) as (_, revision):
        return "; ".join(_outdated(revision))


def stored_round(url: str, round_index: int) -> RoundRecord:
    """Return a round with all the inputs of its decision. Raises NotFound, StoreUnavailable."""
    with _looking(url) as (connection, revision):
        if revision != REVISIONS[-1]:
            raise StoreUnavailable("; ".join(_outdated(revision)))
        return queries.round_record(connection, round_index)


@contextmanager
def _looking(url: str) -> Iterator[tuple[Connection, str | None]]:
    """Yield a connection that sees one instant and writes nothing, and the revision of the tables."""
    place = checked_url(url)
    is_sqlite = place.get_backend_name() == "sqlite"
    _check_file(place)
    engine = create_engine(url) if is_sqlite else create_engine(url, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            if is_sqlite:
                connection.exec_driver_sql("BEGIN")  # its module would begin with the first write only
            yield connection, stored_revision(connection, place.render_as_string())
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"{place.render_as_string()} cannot be read: {str(error).splitlines()[0]}") from error
    finally:
        engine.dispose()


def _check_file(place: URL, *, may_be_new: bool = False) -> None:
    """Raise StoreUnavailable if SQLite's file is not there; with `may_be_new`, if it could not be made either."""
    if place.get_backend_name() != "sqlite":
        return
    path = Path(str(place.database)).absolute()
    if not path.exists() and not (may_be_new and path.parent.is_dir()):
        absent = f"folder {path.parent}" if may_be_new else f"database {path}"
        fix = "name the service's with GAVEL_STATE_DIR=/its/state/folder, or --database-url"
        raise StoreUnavailable(f"there is no {absent}: {fix}")


def upgrade(url: str) -> tuple[str | None, str]:
    """Bring the tables to this Gavel's; the revision before (None: empty) and after. Raises StoreUnavailable."""
    place = checked_url(url)
    _check_file(place, may_be_new=True)
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            before = stored_revision(connection, place.render_as_string())
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"{place.render_as_string()} cannot be read: {str(error).splitlines()[0]}") from error
    finally:
        engine.dispose()
    for opened in open_database(url, busy_timeout_s=60.0):
        opened.dispose()
    return before, REVISIONS[-1]


def _outdated(revision: str | None) -> Iterator[str]:
    if revision is None:
        yield "the database is empty; `gavel db upgrade` or `gavel serve` makes its tables"
    elif revision != REVISIONS[-1]:
        yield f"the tables are at revision {revision}, this Gavel's are {REVISIONS[-1]}: run `gavel db upgrade`"


def _damage(connection: Connection) -> Iterator[str]:
    """Return what the database's own check reports; PostgreSQL checks its pages as it reads them."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.execute(text("PRAGMA integrity_check")):
        if line != "ok":
            yield f"damaged: {line}"
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"row {row} of {table} names a row of {parent} that is not there"


def _contents(connection: Connection, revision: str) -> Report:
    """Decode every job, round and document, as the service would."""
    jobs, rounds = list(_ids(connection)), _rounds(connection)
    reads: list[Callable[[], object]] = [
        *(partial(queries.job, connection, job_id) for job_id in jobs),
        *(partial(queries.round_record, connection, index) for index in rounds),
        lambda: codec.cluster(queries.document(connection, "cluster")),
        lambda: codec.throughputs(queries.document(connection, "throughputs")),
        lambda: codec.nodes(queries.document(connection, "nodes")),
        lambda: codec.startup_times(queries.document(connection, "startup_times")),
        lambda: codec.infeasible(queries.document(connection, "infeasible")),
    ]
    faults = [fault for read in reads if (fault := _fault(read))]
    return Report(revision=revision, jobs=len(jobs), rounds=len(rounds), faults=tuple(faults))


def _rounds(connection: Connection) -> Sequence[int]:
    return connection.execute(select(RoundRow.round_index).order_by(RoundRow.round_index)).scalars().all()


def _ids(connection: Connection) -> Iterator[str]:
    last = ""
    while (
        ids := connection.execute(select(JobRow.id).where(JobRow.id > last).order_by(JobRow.id).limit(ROWS_A_READ))
        .scalars()
        .all()
    ):
        yield from ids
        last = ids[-1]


def _fault(read: Callable[[], object]) -> str | None:
    try:
        read()
    except GavelError as error:
        return str(error)
    return None
