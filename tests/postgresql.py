"""A real PostgreSQL for tests: a private server on a socket in a folder of its own, stopped by its process id."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

import pytest

LIMIT_S = 60.0
INSTALLED = Path("/usr/lib/postgresql")  # where Debian puts each major version


@dataclass
class Server:
    """A running server. `postmaster` is its first process."""

    socket_dir: Path
    postmaster: "subprocess.Popen[bytes]"
    names: Iterator[int] = field(default_factory=count)

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://gavel@/{name}?host={self.socket_dir}"

    def execute(self, statement: str) -> None:
        import psycopg

        where = f"dbname=postgres user=gavel host={self.socket_dir}"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def new_database(self) -> str:
        """URL of a fresh database without tables."""
        name = f"test_{next(self.names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def binaries() -> Path:
    """Folder of PostgreSQL's programs; skips the test when there is none."""
    programs = sorted(INSTALLED.glob("*/bin/initdb"))
    if not programs:
        pytest.skip(f"needs PostgreSQL: no initdb below {INSTALLED} (Debian: apt install postgresql)")
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gavel[postgres]'")
    return programs[-1].parent


@contextmanager
def running_server() -> Iterator[Server]:
    """A fresh server; everything of it is gone afterwards."""
    programs = binaries()
    folder = Path(tempfile.mkdtemp(prefix="gavel-pg-"))  # short: a socket's path has at most 107 characters
    owner = _owner()
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    options = ["--auth=trust", "--username=gavel", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    made = subprocess.run(
        [programs / "initdb", "-D", folder / "data", *options],
        capture_output=True, text=True, check=False, cwd=folder, **owner,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200", "-k", str(folder)]
    with (folder / "log").open("wb") as log:
        postmaster = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *settings], stdout=log, stderr=log, cwd=folder, **owner
        )
    try:
        server = Server(folder, postmaster)
        _wait_until_it_answers(server)
        yield server
    finally:
        postmaster.send_signal(signal.SIGINT)  # "fast": connections are cut, nothing is left behind
        postmaster.wait(LIMIT_S)
        shutil.rmtree(folder)


def _owner() -> dict[str, int]:
    """PostgreSQL refuses to run as root: the account of its package then, else nobody."""
    if os.geteuid() != 0:
        return {}
    names = {each.pw_name: each for each in pwd.getpwall()}
    account = names.get("postgres") or names["nobody"]
    return {"user": account.pw_uid, "group": account.pw_gid}


def _wait_until_it_answers(server: Server) -> None:
    import psycopg

    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return server.execute("SELECT 1")
        except psycopg.OperationalError:
            log = (server.socket_dir / "log").read_text()
            assert server.postmaster.poll() is None and time.monotonic() < end_s, log
            time.sleep(0.02)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """One server for the session; each test makes databases of its own."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql: Server) -> str:
    """URL of a database with tables, for `emptied`: making one for each test costs a thousand files each time."""
    from gavel.store.sql import SqlStore

    url = postgresql.new_database()
    SqlStore(url).close()
    return url


def emptied(url: str) -> str:
    """The database with nothing but what its migrations put there."""
    from sqlalchemy import create_engine, delete, insert

    from gavel.store.rules import DEFAULT_TIER
    from gavel.store.schema import Base, CountersRow, TierRow

    engine = create_engine(url)
    with engine.begin() as connection:
        tables = reversed(Base.metadata.sorted_tables)
        connection.exec_driver_sql("; ".join(str(delete(table)) for table in tables))  # in one call: there are many
        connection.execute(insert(CountersRow), {"id": 1, "version": 0, "change": 0})
        connection.execute(insert(TierRow), asdict(DEFAULT_TIER))
    engine.dispose()
    return url
