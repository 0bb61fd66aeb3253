"""Maintenance of a database: copies, checks, upgrades, and what is deleted."""

import os
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.errors import InvalidRequest, StoreUnavailable
from gavel.ports import AuditEntry, Changes, JobEvent
from gavel.store.maintenance import backup, check, upgrade
from gavel.store.samples import round_record
from gavel.store.schema import REVISIONS
from gavel.store.sql import SqlStore
from gavel.types import Tier
from tests.builders import a_spec
from tests.postgresql import emptied
from tests.store.conftest import OpenStore
from tests.store.test_upgrade import FIRST_RELEASE


def test_a_backup_of_a_database_in_use_holds_all_that_was_acknowledged(open_store: OpenStore, tmp_path: Path) -> None:
    store, copy = open_store(), tmp_path / "copy.db"
    job = store.submit(a_spec(), key="k", body_hash="h", now_s=1.0).job
    store.commit(0, Changes(round=round_record(1)))
    report = backup(f"sqlite:///{tmp_path}/gavel.db", copy)
    assert (report.jobs, report.rounds, report.faults) == (1, 1, ())
    later = store.submit(a_spec(), key=None, body_hash="h", now_s=2.0).job
    restored = SqlStore(f"sqlite:///{copy}")
    assert list(restored.snapshot().jobs) == [job.id] and later.id in store.snapshot().jobs
    restored.close()


def test_a_backup_is_for_who_made_it_and_nothing_of_one_that_failed_stays(database: Path, tmp_path: Path) -> None:
    """It holds what the database does, whatever the umask of the shell says."""
    umask = os.umask(0o022)
    try:
        backup(f"sqlite:///{database}", tmp_path / "copy.db")
    finally:
        os.umask(umask)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    database.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreUnavailable):
        backup(f"sqlite:///{database}", tmp_path / "second.db")
    assert not (tmp_path / "second.db").exists()


def test_a_backup_overwrites_nothing_and_leaves_postgresql_to_its_own(database: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is there already"):
        backup(f"sqlite:///{database}", database)
    with pytest.raises(InvalidRequest, match="pg_dump"):
        backup("postgresql://gavel@/gavel", tmp_path / "copy")
    with pytest.raises(StoreUnavailable, match="there is no database"):
        backup(f"sqlite:///{tmp_path}/none.db", tmp_path / "copy")
    with pytest.raises(StoreUnavailable, match="cannot be copied"):
        backup(f"sqlite:///{database}", Path("/proc/copy.db"))
    with pytest.raises(InvalidRequest, match="there is no folder"):
        backup(f"sqlite:///{database}", tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        ("UPDATE jobs SET spec = substr(spec, 5)", "job .* cannot be read"),
        ("UPDATE rounds SET decision = x'00'", "round 1 cannot be read"),
        ("UPDATE documents SET body = x'00'", "cannot be read"),
        ("DELETE FROM jobs", "names a row of jobs that is not there"),
    ],
)
def test_a_check_names_each_fault(harm: str, fault: str, database: Path, open_store: OpenStore) -> None:
    store = open_store()
    store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    store.commit(0, Changes(round=round_record(1), throughputs=()))
    store.close()
    assert check(f"sqlite:///{database}").faults == ()
    with sqlite3.connect(database) as connection:
        connection.execute(harm)
    connection.close()
    faults = check(f"sqlite:///{database}").faults
    assert faults and re.search(fault, faults[0]), faults


def test_a_check_of_an_old_database_says_what_to_do_and_an_upgrade_does_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/first.db"
    with sqlite3.connect(tmp_path / "first.db") as connection:
        connection.executescript(FIRST_RELEASE.read_text())
    connection.close()
    assert "run `gavel db upgrade`" in check(url).faults[0] and check(url).revision == "0001"
    assert upgrade(url) == ("0001", REVISIONS[-1]) and upgrade(url) == (REVISIONS[-1], REVISIONS[-1])
    report = check(url)
    assert (report.jobs, report.rounds, report.faults) == (4, 2, ())


def test_a_check_leaves_somebody_elses_database_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = path.read_bytes()
    for look in (check, upgrade):
        with pytest.raises(StoreUnavailable, match="not Gavel's"):
            look(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.full
def test_a_postgresql_is_checked_too(migrated_postgresql: str) -> None:
    url = emptied(migrated_postgresql)
    store = SqlStore(url)
    store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    store.close()
    report = check(url)
    assert (report.revision, report.jobs, report.faults) == (REVISIONS[-1], 1, ())


def test_old_stories_and_decisions_of_rounds_are_forgotten_and_what_people_decided_stays(open_store: OpenStore) -> None:
    store = open_store(keep_events_s=100.0)
    job = store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    entry = AuditEntry(at_s=2.0, by="p", subject=f"job/{job.id}", before=None, after={}, round_index=1)
    event = JobEvent(job_id=job.id, at_s=2.0, kind="gang.launched")
    store.commit(0, Changes(round=round_record(1), audit=(entry,), events=(event,)))
    assert len(store.events(job.id)) == 2 and len(store.audit()) == 2
    late = round_record(2)
    late = replace(late, plan=replace(late.plan, starts_at_s=150.0))
    store.commit(1, Changes(round=late, events=(replace(event, at_s=149.0),)))
    assert [each.at_s for each in store.events(job.id)] == [149.0]
    assert [each.subject for each in store.audit()] == ["tier/gold"] and store.job(job.id) == job
