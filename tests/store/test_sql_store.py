"""Failures that only the SQL store can have: threads, processes, locks, a full disk, kill -9."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from gavel.errors import InvariantViolated, StaleVersion, StoreUnavailable
from gavel.ports import Changes, JobEvent, JobFilter
from gavel.store import codec
from gavel.store.samples import round_record
from gavel.store.sql import SqlStore
from gavel.types import Job, JobState, Tier, User
from gavel.types.autopilot import AutopilotDecision, AutopilotMode
from tests.builders import a_spec
from tests.store.conftest import OpenStore


@contextmanager
def another_writer(database: Path) -> Iterator[None]:
    """A second process' connection inside a write transaction."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def submit(store: SqlStore, key: str | None = None) -> str:
    return store.submit(a_spec(), key=key, body_hash="h", now_s=1.0).job.id


# --- what is read again -----------------------------------------------------------------------------------------


def test_what_was_written_since_is_found_by_an_index(open_store: OpenStore, database: Path) -> None:
    """By the scheduler and by those who follow the feed: else each look takes longer with all jobs that were kept."""
    store = open_store()
    submit(store)
    position = store.feed(after=None).position
    store.snapshot()
    job = store.job(submit(store))
    asked: list[tuple[str, Any]] = []

    def ask(_connection: object, _cursor: object, sql: str, given: Any, *_: object) -> None:
        asked.append((sql, given))

    event.listen(Engine, "before_cursor_execute", ask)
    try:
        assert job.id in store.snapshot().jobs
        assert [item.id for _, item in store.feed(after=position).items if isinstance(item, Job)] == [job.id]
    finally:
        event.remove(Engine, "before_cursor_execute", ask)
    connection = sqlite3.connect(database)
    plans = [line[3] for sql, given in asked for line in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
    connection.close()
    assert any("ix_jobs_change" in each for each in plans)
    assert not [each for each in plans if each.startswith("SCAN jobs")]


def test_only_what_others_have_written_is_decoded_again(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = open_store(), open_store()
    ids = [submit(store) for _ in range(3)]
    snapshot = store.snapshot()
    mine, both = (replace(snapshot.jobs[each], steps_reported=7, metrics={"loss": 0.5}) for each in ids[:2])
    other.request_pause(both.id, is_paused=True, now_s=2.0)
    store.commit(snapshot.version, Changes(jobs=(mine, both)))
    other.request_cancel(ids[2], now_s=3.0)
    decoded: list[str] = []
    read = codec.job

    def counted(row: Any) -> Job:
        decoded.append(row.id)
        return read(row)

    monkeypatch.setattr(codec, "job", counted)
    seen = store.snapshot().jobs
    assert decoded == ids[1:]
    assert seen == open_store().snapshot().jobs and seen[mine.id] == replace(mine, version=2)


def test_a_plan_that_this_process_has_written_is_not_decoded_again(open_store: OpenStore) -> None:
    store, record = open_store(), round_record(1)
    amended = replace(record.plan, leases=())
    version = store.commit(store.snapshot().version, Changes(round=record))
    assert [each.plan is record.plan for each in store.snapshot().round_records] == [True]
    store.commit(version, Changes(amended=amended))
    assert [each.plan is amended for each in store.snapshot().round_records] == [True]
    assert store.round(1).plan is amended


def test_a_job_is_written_whole_whether_or_not_its_state_changes(open_store: OpenStore, database: Path) -> None:
    """In one commit, and once more after its end, of which the reason and the instant may change."""
    store = open_store()
    ids = [submit(store) for _ in range(3)]
    jobs = store.snapshot().jobs
    runs = replace(jobs[ids[0]], state=JobState.LEASED, generation=1)
    waits = replace(jobs[ids[1]], generation=2, losses=1)
    ends = replace(jobs[ids[2]], state=JobState.CANCELLED, finished_at_s=7.0)
    version = store.commit(store.snapshot().version, Changes(jobs=(runs, waits, ends)))
    later = replace(ends, finished_at_s=9.0), replace(runs, steps_done=5)
    store.commit(version, Changes(jobs=later))
    connection = sqlite3.connect(database)
    columns = "state, generation, steps_done, finished_at_s, version"
    rows = dict(zip(ids, connection.execute(f"SELECT {columns} FROM jobs ORDER BY id"), strict=True))
    connection.close()
    assert rows == {
        ids[0]: ("LEASED", 1, 5, None, 3),
        ids[1]: ("QUEUED", 2, 0, None, 2),
        ids[2]: ("CANCELLED", 0, 0, 9.0, 3),
    }
    assert store.job(ids[2]) == replace(later[0], version=3) and store.job(ids[1]) == replace(waits, version=2)


# --- threads ----------------------------------------------------------------------------------------------------


def test_one_key_from_many_threads_makes_one_job(open_store: OpenStore) -> None:
    store = open_store()
    barrier = threading.Barrier(8)

    def same_submit(_: int) -> tuple[str, bool]:
        barrier.wait()
        answer = store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
        return answer.job.id, answer.created

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(same_submit, range(8)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False] * 7 + [True]
    assert len(store.jobs(JobFilter()).jobs) == 1


def test_of_many_schedulers_one_commit_wins(open_store: OpenStore) -> None:
    store = open_store()
    job = store.job(submit(store))
    barrier = threading.Barrier(8)

    def commit(generation: int) -> bool:
        barrier.wait()
        try:
            return store.commit(0, Changes(jobs=(replace(job, generation=generation),))) == 1
        except StaleVersion:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(commit, range(1, 9)))
    assert won.count(True) == 1 and store.job(job.id).generation == won.index(True) + 1


def test_a_bad_item_does_not_fail_its_neighbours(database: Path, open_store: OpenStore) -> None:
    """All wait while another process writes, so that they are committed as one group."""
    store = open_store(busy_timeout_s=60)
    job = store.job(submit(store))
    bad_event = JobEvent(job_id="", at_s=1.0, kind="x", round_index=2**70)  # beyond what a database can hold
    with ThreadPoolExecutor(24) as pool:
        with another_writer(database):
            good = [pool.submit(submit, store) for _ in range(20)]
            violation = pool.submit(store.commit, 0, Changes(jobs=(replace(job, steps_done=101),)))
            overflow = pool.submit(store.commit, 0, Changes(jobs=(replace(job, generation=1),), events=(bad_event,)))
        assert len({each.result() for each in good}) == 20
    assert isinstance(violation.exception(), InvariantViolated)
    assert isinstance(overflow.exception(), OverflowError)
    assert store.job(job.id) == job and store.snapshot().version == 0
    assert len(store.snapshot().jobs) == 21


def test_changes_from_the_api_wake_the_scheduler(open_store: OpenStore) -> None:
    calls: list[str] = []
    store = open_store(on_change=lambda: calls.append("change"))
    job_id = submit(store)
    store.request_cancel(job_id, now_s=2.0)
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    store.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=1.0)
    store.add_command("node.cordon", subject="node/n0", body={}, by="op", now_s=1.0)
    assert len(calls) == 5
    store.commit(0, Changes(jobs=(replace(store.job(job_id), state=JobState.CANCELLED),)))
    with pytest.raises(StaleVersion):
        store.put_tier(Tier(name="gold"), expected_version=7, by="op", now_s=1.0)
    assert len(calls) == 5


def test_a_closed_store_takes_no_writes(open_store: OpenStore) -> None:
    store = open_store()
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        submit(store)


# --- the database refuses ---------------------------------------------------------------------------------------


def test_a_locked_database_acknowledges_nothing(database: Path, open_store: OpenStore) -> None:
    store = open_store(busy_timeout_s=0.05)
    with another_writer(database):
        with pytest.raises(StoreUnavailable, match="locked"):
            submit(store, key="k")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.commit(0, Changes())
        assert store.jobs(JobFilter()).jobs == () and store.snapshot().version == 0
    submit(store, key="k")
    assert len(store.jobs(JobFilter()).jobs) == 1


def test_a_full_database_acknowledges_nothing_and_recovers(database: Path, open_store: OpenStore) -> None:
    @event.listens_for(Engine, "connect")
    def bound_pages(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 60")

    try:
        store = open_store()
        acknowledged = []
        with pytest.raises(StoreUnavailable, match="full"):
            for _ in range(1000):
                acknowledged.append(submit(store))
        assert acknowledged
        store.close()
    finally:
        event.remove(Engine, "connect", bound_pages)
    roomy = open_store()
    assert sorted(roomy.snapshot().jobs) == acknowledged
    submit(roomy)


# --- several processes ------------------------------------------------------------------------------------------


def test_what_another_process_writes_is_in_the_next_snapshot(open_store: OpenStore) -> None:
    scheduler, api = open_store(), open_store()
    assert dict(scheduler.snapshot().jobs) == {}
    first = submit(api)
    assert list(scheduler.snapshot().jobs) == [first]
    api.request_cancel(first, now_s=2.0)
    assert scheduler.snapshot().jobs[first].cancel_requested
    second = submit(scheduler)
    third = submit(api)
    assert list(scheduler.snapshot().jobs) == sorted([first, second, third])
    cancelled = replace(api.job(first), state=JobState.CANCELLED)
    api.commit(0, Changes(jobs=(cancelled,)))
    assert list(scheduler.snapshot().jobs) == sorted([second, third]) and scheduler.snapshot().version == 1


def test_an_unchanged_snapshot_shares_the_jobs_that_did_not_change(open_store: OpenStore) -> None:
    store = open_store()
    first, second = submit(store), submit(store)
    before = store.snapshot()
    store.request_cancel(second, now_s=2.0)
    after = store.snapshot()
    assert after.jobs[first] is before.jobs[first] and after.jobs[second] is not before.jobs[second]


SUBMIT_UNTIL_KILLED = """
import itertools, sys
from gavel.store.sql import SqlStore
from gavel.types import JobSpec
from concurrent.futures import ThreadPoolExecutor
store = SqlStore(sys.argv[1])
spec = JobSpec(kind="mlp", user="ann", tier="default", argv=("true",), total_steps=1)
def submit(number):
    for part in itertools.count():
        job = store.submit(spec, key=f"{number}-{part}", body_hash="h", now_s=1.0).job
        sys.stdout.write(job.id + "\\n")
        sys.stdout.flush()
with ThreadPoolExecutor(4) as pool:
    list(pool.map(submit, range(4)))
"""


@pytest.mark.small("30")
@pytest.mark.parametrize("enough", [1, 30, 200])
def test_kill_9_loses_and_doubles_no_acknowledged_submit(enough: int, database: Path, open_store: OpenStore) -> None:
    argv = [sys.executable, "-c", SUBMIT_UNTIL_KILLED, f"sqlite:///{database}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(enough)]
        process.kill()
        acknowledged += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    whole = [line.strip() for line in acknowledged if line.endswith("\n")]
    store = open_store()
    stored = store.snapshot().jobs
    assert len(whole) >= enough and len(set(whole)) == len(whole) and set(whole) <= set(stored)
    with sqlite3.connect(database) as connection:
        jobs_and_keys = connection.execute(
            "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM idempotency_keys), "
            "(SELECT count(DISTINCT job_id) FROM events)"
        ).fetchone()
    connection.close()
    assert set(jobs_and_keys) == {len(stored)}
    assert len(stored) - len(whole) <= 4  # at most what each thread was waiting for
    again = store.submit(a_spec(), key="0-0", body_hash="h", now_s=9.0)
    assert not again.created


# --- what is written beside -------------------------------------------------------------------------------------


def test_changes_of_tiers_and_users_are_audited(database: Path, open_store: OpenStore) -> None:
    store = open_store()
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    store.put_tier(Tier(name="gold", weight=2.0), expected_version=1, by="eve", now_s=2.0)
    store.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=3.0)
    rows = sqlite_rows(database, "SELECT at_s, by_name, subject, before, after FROM audit ORDER BY sequence")
    assert [row[:3] for row in rows] == [(1.0, "op", "tier/gold"), (2.0, "eve", "tier/gold"), (3.0, "op", "user/ann")]
    assert rows[0][3] is None and json.loads(rows[1][3])["weight"] == 1.0 and json.loads(rows[1][4])["weight"] == 2.0
    assert json.loads(rows[2][4]) == {"name": "ann", "tiers": ["gold"]}


def test_connections_are_set_up_for_durability(database: Path, open_store: OpenStore) -> None:
    seen: dict[str, object] = {}

    @event.listens_for(Engine, "begin")
    def look(connection: object) -> None:
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout"):
            seen[name] = connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # type: ignore[attr-defined]

    try:
        submit(open_store())
    finally:
        event.remove(Engine, "begin", look)
    assert seen == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


def test_odd_characters_from_jobs_do_not_stop_a_commit(open_store: OpenStore) -> None:
    store = open_store()
    job = store.job(submit(store))
    event_ = JobEvent(job_id=job.id, at_s=1.0, kind="gang.ended", message="torn \udc80 nul \0 end")
    store.commit(0, Changes(jobs=(replace(job, log_tail="torn \udc80"),), events=(event_,)))
    assert store.job(job.id).log_tail == "torn ?"
    assert store.events(job.id)[-1].message == "torn ? nul  end"


def sqlite_rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(database)
    rows = connection.execute(query).fetchall()
    connection.close()
    return rows


def test_decisions_of_the_autopilot_go_with_the_history_but_for_the_last_one(open_store: OpenStore) -> None:
    """Its number and what it has learned are what the next decision goes on from."""
    store = open_store(keep_events_s=100.0)
    for number in range(3):
        made = AutopilotDecision(
            number=number,
            at_s=float(number),
            mode=AutopilotMode.ADVISE,
            goal="mean_jct",
            seed=0,
            incumbent="fifo",
            chosen="fifo",
            reason="there is no other",
        )
        store.autopilot.add(made, b"q", b"learned", keep_questions=20)
    late = round_record(1)
    late = replace(late, plan=replace(late.plan, starts_at_s=1000.0))
    store.commit(store.snapshot().version, Changes(round=late))
    assert [each.number for each in store.autopilot.decisions()] == [2] and store.autopilot.experience() == b"learned"
