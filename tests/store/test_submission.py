"""Submits that are applied together end as if applied one after the other, and none fails for another."""

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from gavel.errors import LimitReached
from gavel.ports import Changes, Submitted
from gavel.store.sql import SqlStore
from gavel.store.submission import Submission
from gavel.store.writer import Transaction
from gavel.types import JobState, Tier
from tests.builders import a_spec

EXAMPLES = 300 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 6
TABLES = ("jobs", "job_labels", "idempotency_keys", "events")
ENDS = (JobState.QUEUED, JobState.COMPLETED, JobState.FAILED)  # of the jobs that were there before


@dataclass(frozen=True)
class Wanted:
    """A submit as an example draws it; `after` are indices of jobs that were there before, one too many among them."""

    user: str
    key: str | None
    body_hash: str
    tiers: tuple[str, ...]
    after: tuple[int, ...]
    is_array: bool


WANTED = st.builds(
    Wanted,
    user=st.sampled_from(["ann", "bob"]),
    key=st.sampled_from([None, "old", "k1", "k2"]),
    body_hash=st.sampled_from(["h1", "h1", "h2"]),
    tiers=st.lists(st.sampled_from(["default", "small"]), min_size=1, max_size=3).map(tuple),
    after=st.lists(st.integers(0, len(ENDS)), max_size=2).map(tuple),
    is_array=st.booleans(),
)


@contextmanager
def a_store(database: Path) -> Iterator[tuple[SqlStore, list[str]]]:
    """A copy of the database with a small tier and a job for each of ENDS; ids are the same in every copy."""
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(database, Path(folder) / "gavel.db")
        with closing(SqlStore(f"sqlite:///{path}", jobs_per_user=6, random_bits=lambda _: 0)) as store:
            store.put_tier(Tier(name="small", max_jobs=3), expected_version=None, by="op", now_s=0.0)
            before = [store.submit(a_spec(user="ann"), key="old", body_hash="h1", now_s=0.0).job]
            before += [store.submit(a_spec(user="ann"), key=None, body_hash="h1", now_s=0.0).job for _ in ENDS[1:]]
            ended = tuple(replace(job, state=state) for job, state in zip(before, ENDS, strict=True))
            store.commit(0, Changes(jobs=ended))
            yield store, [job.id for job in before] + ["nobody"]


def submission(store: SqlStore, wanted: Wanted, before: Sequence[str]) -> Submission:
    after = tuple(dict.fromkeys(before[index] for index in wanted.after))
    specs = [a_spec(user=wanted.user, tier=tier, after=after, labels={"n": tier}) for tier in wanted.tiers]
    return Submission(
        books=store._books,
        specs=specs,
        key=wanted.key,
        body_hash=wanted.body_hash,
        now_s=1.0,
        is_array=wanted.is_array,
    )


def in_one_group(store: SqlStore, items: Sequence[Submission]) -> "list[Future[tuple[Submitted, ...]]]":
    """Hold the writer until all of them wait for it."""
    is_busy, may_go = threading.Event(), threading.Event()

    def hold(_tx: Transaction) -> None:
        is_busy.set()
        assert may_go.wait(30)

    held = store._writer.send(hold)
    assert is_busy.wait(30)
    answers = [store._writer.send(each) for each in items]
    may_go.set()
    held.result(30)
    return answers


def outcome(answer: "Future[Any]") -> object:
    error = answer.exception(30)
    return (type(error), str(error)) if error else answer.result()


def stored(store: SqlStore) -> dict[str, list[dict[str, Any]]]:
    """All rows, without the number of the commit that wrote them."""
    path = store._read_engine.url.database
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in TABLES}
    return {
        name: [{key: row[key] for key in row.keys() if key != "change"} for row in rows]  # noqa: SIM118
        for name, rows in tables.items()
    }


@settings(max_examples=EXAMPLES)
@given(wanted=st.lists(WANTED, min_size=2, max_size=8))
def test_together_is_the_same_as_one_after_the_other(empty_database: Path, wanted: list[Wanted]) -> None:
    with a_store(empty_database) as (alone, before), a_store(empty_database) as (together, same):
        assert before == same
        one_by_one = [outcome(alone._writer.send(submission(alone, each, before))) for each in wanted]
        items = [submission(together, each, before) for each in wanted]
        assert [outcome(each) for each in in_one_group(together, items)] == one_by_one
        assert stored(together) == stored(alone)


def test_a_submit_that_the_database_refuses_fails_alone(empty_database: Path) -> None:
    with a_store(empty_database) as (store, before):
        refuse = "BEFORE INSERT ON jobs WHEN NEW.user_name = 'bob' BEGIN SELECT RAISE(ABORT, 'no'); END"
        store._writer.write(lambda tx: tx.connection.exec_driver_sql(f"CREATE TRIGGER refuse {refuse}"))
        wanted = [Wanted(user, user, "h1", ("default",), (), False) for user in ("ann", "bob", "eve")]
        ann, bob, eve = in_one_group(store, [submission(store, each, before) for each in wanted])
        assert isinstance(bob.exception(30), IntegrityError)
        assert all(store.job(each.result(30)[0].job.id) for each in (ann, eve))
        assert store.submitted("bob", "bob", body_hash="h1") == ()


def test_jobs_of_another_process_count_at_once(empty_database: Path) -> None:
    with a_store(empty_database) as (store, _):
        other = SqlStore(str(store._read_engine.url), jobs_per_user=6)
        small = a_spec(user="eve", tier="small")
        with closing(other):
            for each in (store, other, store):
                each.submit(small, key=None, body_hash="h", now_s=1.0)
            for each in (other, store):
                with pytest.raises(LimitReached, match="tier small has 3 unfinished jobs and may have 3, so 1 more"):
                    each.submit(small, key=None, body_hash="h", now_s=1.0)
            job = next(job for job in other.snapshot().jobs.values() if job.spec == small)
            other.commit(other.snapshot().version, Changes(jobs=(replace(job, state=JobState.CANCELLED),)))
            store.submit(small, key=None, body_hash="h", now_s=1.0)


def test_a_limit_holds_however_many_come_at_once(empty_database: Path) -> None:
    with a_store(empty_database) as (store, before):
        wanted = Wanted("eve", None, "h1", ("default", "default"), (), False)
        answers = in_one_group(store, [submission(store, wanted, before)] * 5)
        assert [each.exception(30) is None for each in answers] == [True, True, True, False, False]
        assert "eve has 6 unfinished jobs and may have 6, so 2 more" in str(answers[-1].exception())
