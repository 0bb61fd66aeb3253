"""Opening a database: connections for writing and for reading, and its tables brought up to date."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import InvalidRequest, StoreUnavailable
from gavel.store.database_file import watch_file
from gavel.store.schema import REVISIONS, CountersRow

MIGRATION_LOCK = 0x6761_7665_6C  # "gavel": any number that nobody else locks in this database


def open_database(url: str, *, busy_timeout_s: float) -> tuple[Engine, Engine]:
    """Return engines for the writer and for readers, migrations applied. Raises StoreUnavailable, InvalidRequest (URL).

    Every read transaction sees one state of the database, whatever is committed meanwhile.
    """
    place = checked_url(url)
    make = _sqlite_engine if place.get_backend_name() == "sqlite" else _server_engine
    writer, reader = (make(url, is_writer, busy_timeout_s) for is_writer in (True, False))
    try:
        _migrate(writer, reader, place.render_as_string())
        if place.get_backend_name() == "sqlite":
            watch_file(writer, reader)
    except BaseException:
        writer.dispose()
        reader.dispose()
        raise
    return writer, reader


def checked_url(url: str) -> URL:
    """Return the URL of a database; raise InvalidRequest for one that cannot be used."""
    try:
        place = make_url(url)
    except SQLAlchemyError as error:
        raise InvalidRequest(
            "database_url", f"not an SQLAlchemy URL ({error}); try sqlite:////path/gavel.db"
        ) from error
    if place.get_backend_name() == "sqlite" and place.database in (None, "", ":memory:"):
        raise InvalidRequest("database_url", "SQLite needs a file here; use MemoryStore to keep nothing")
    _check_driver(place)
    return place


def _check_driver(place: URL) -> None:
    """Raise InvalidRequest if the driver of such a database is not installed."""
    name = place.get_backend_name()
    try:
        place.get_dialect().import_dbapi()
    except (ImportError, SQLAlchemyError):
        extra = "pip install 'gavel[postgres]'" if name == "postgresql" else "sqlite:////path/gavel.db or postgresql://"
        raise InvalidRequest("database_url", f"there is no driver for {name} here; try {extra}") from None


# --- connections ------------------------------------------------------------------------------------------------


def _sqlite_engine(url: str, is_writer: bool, busy_timeout_s: float) -> Engine:
    engine = create_engine(url, pool_size=8, max_overflow=56)
    event.listen(engine, "connect", _set_up_sqlite(busy_timeout_s))
    # A deferred transaction that turns into a write fails at once when another process writes; IMMEDIATE waits.
    begin = "BEGIN IMMEDIATE" if is_writer else "BEGIN"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _set_up_sqlite(busy_timeout_s: float) -> Callable[[Any, Any], None]:
    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the module's own BEGIN comes too late
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={round(busy_timeout_s * 1000)}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # NORMAL may lose acknowledged commits when the power goes
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return set_up


def _server_engine(url: str, is_writer: bool, busy_timeout_s: float) -> Engine:
    level = "READ COMMITTED" if is_writer else "REPEATABLE READ"
    options = {"options": f"-c lock_timeout={round(busy_timeout_s * 1000)}"}
    return create_engine(
        url, isolation_level=level, pool_size=8, max_overflow=56, pool_pre_ping=True, connect_args=options
    )


# --- migrations -------------------------------------------------------------------------------------------------


def _migrate(writer: Engine, reader: Engine, place: str) -> None:
    """Apply the missing migrations; nearly free when there are none."""
    try:
        with reader.connect() as connection:
            stored = stored_revision(connection, place)
        if stored == REVISIONS[-1]:
            return
        with writer.begin() as connection:
            if connection.dialect.name == "postgresql":  # SQLite's write transaction excludes others by itself
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
                exclude_writers(connection)
            if stored_revision(connection, place) != REVISIONS[-1]:  # else another process was faster
                _upgrade(connection)
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"{place} cannot be opened: {str(error).splitlines()[0]}") from error


def stored_revision(connection: Connection, place: str) -> str | None:
    """Return the database's revision; None if it is empty. Raises StoreUnavailable if this code cannot use it."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if "alembic_version" not in tables:
        raise StoreUnavailable(f"{place} holds tables that are not Gavel's; name another database")
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision not in REVISIONS:
        raise StoreUnavailable(
            f"{place} is at revision {revision}, this Gavel knows up to {REVISIONS[-1]}: "
            "it was written by a newer Gavel; start that one, or restore a backup"
        )
    return str(revision)


def exclude_writers(connection: Connection) -> None:
    """Let the writes of all services wait until this transaction is over, and then see what it has changed.

    Else what an older release had begun would be committed into the tables of the newer one. The lock is that of the
    row which every write begins with.
    """
    if inspect(connection).has_table(CountersRow.__tablename__):
        connection.execute(select(CountersRow.id).with_for_update())


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gavel.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
