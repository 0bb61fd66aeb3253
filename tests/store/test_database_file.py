"""A database whose file is deleted or replaced under the service acknowledges nothing more."""

import shutil
from pathlib import Path

import pytest

from gavel.errors import StoreUnavailable
from gavel.store.leadership import LeaderRow
from gavel.store.sql import SqlStore
from tests.builders import a_spec
from tests.store.conftest import OpenStore


def check_that_it_refuses(store: SqlStore) -> None:
    calls = (
        lambda: store.submit(a_spec(), key=None, body_hash="h", now_s=1.0),
        store.tiers,
        store.snapshot,
        store.leadership.current,
        store.leadership.beat,
        lambda: store.leadership.take("me", lease_s=1.0, seen=LeaderRow()),
    )
    for call in calls:
        with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
            call()


def test_after_a_deletion_nothing_is_acknowledged_and_no_empty_file_takes_its_place(
    open_store: OpenStore, database: Path
) -> None:
    store = open_store()
    store.submit(a_spec(), key=None, body_hash="h", now_s=1.0)
    for path in database.parent.glob("gavel.db*"):
        path.unlink()
    check_that_it_refuses(store)
    assert not list(database.parent.glob("gavel.db*"))


def test_a_copy_in_its_place_is_another_file_and_the_file_itself_may_come_back(
    open_store: OpenStore, database: Path, tmp_path: Path
) -> None:
    store = open_store()
    away = database.rename(tmp_path / "away")
    shutil.copy(away, database)
    check_that_it_refuses(store)
    away.rename(database)
    assert store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).created
