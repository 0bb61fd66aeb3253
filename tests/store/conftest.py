"""Stores to test: one in memory, one in a fresh SQLite file."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gavel.store.sql import SqlStore
from tests.postgresql import migrated_postgresql, postgresql

__all__ = ["migrated_postgresql", "postgresql"]

OpenStore = Callable[..., SqlStore]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database to copy, so that not every test migrates."""
    path = tmp_path_factory.mktemp("empty") / "gavel.db"
    SqlStore(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Path:
    """A fresh database file."""
    return Path(shutil.copy(empty_database, tmp_path / "gavel.db"))


@pytest.fixture
def open_store(database: Path) -> Iterator[OpenStore]:
    """Opens the test's database, again and again if wanted; all are closed after the test."""
    opened: list[SqlStore] = []

    def open_it(**settings: object) -> SqlStore:
        opened.append(SqlStore(f"sqlite:///{database}", **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()
