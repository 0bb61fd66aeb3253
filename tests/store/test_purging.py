"""What the database deletes of ended jobs, and what it keeps."""

from dataclasses import replace
from hashlib import sha256

import pytest
import sqlalchemy as sa

from gavel.errors import Conflict, NotFound
from gavel.ports import Changes, JobEvent
from gavel.store.schema import Base
from gavel.store.sql import SqlStore
from gavel.types import Job, JobState, MetricPoint, Scope
from tests.builders import a_spec
from tests.postgresql import emptied
from tests.store.conftest import OpenStore

DAY_S = 86_400.0
KEPT = {"alembic_version", "counters", "audit", "documents", "tiers", "usage", "users", "leadership"}


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def an_ended_job(store: SqlStore, name: str, *, submitted_at_s: float = DAY_S, ended_at_s: float = 2 * DAY_S) -> Job:
    """A job with a row in every table that has rows of jobs."""
    job = store.submit(a_spec(name=name, labels={"a": "b"}), key=name, body_hash="h", now_s=submitted_at_s).job
    store.add_token(digest(name), user=job.spec.user, scope=Scope.JOB, job_id=job.id, now_s=submitted_at_s)
    ended = replace(job, state=JobState.CANCELLED, finished_at_s=ended_at_s)
    point = MetricPoint(
        job_id=job.id, generation=1, accelerator_type="a", previous_step=0, step=1, at_s=ended_at_s, values={"loss": 1}
    )
    event = JobEvent(job_id=job.id, at_s=ended_at_s, kind="job.cancelled")
    changes = Changes(jobs=(ended,), events=(event,), metric_points=(point,))
    store.commit(store.snapshot().version, changes)
    return ended


def rows(store: SqlStore) -> dict[str, int]:
    """Rows of the tables that hold rows of jobs."""
    with store._read_engine.connect() as connection:
        counts = {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in Base.metadata.sorted_tables
        }
    return {name: count for name, count in counts.items() if name not in KEPT}


def check_nothing_is_left(store: SqlStore) -> None:
    before = rows(store)
    by_hand = an_ended_job(store, "by-hand")
    store.purge_job(by_hand.id, by="ann", now_s=3 * DAY_S)
    with pytest.raises(NotFound):
        store.job(by_hand.id)
    assert rows(store) == before
    old = [an_ended_job(store, f"old-{index}").id for index in range(3)]
    recent = an_ended_job(store, "recent", ended_at_s=5 * DAY_S)
    assert store.ended_jobs(4 * DAY_S) == tuple(old)
    store.delete_ended(old)
    assert store.ended_jobs(4 * DAY_S) == ()
    assert store.job(recent.id).state is JobState.CANCELLED
    (entry,) = store.audit(subject=f"job/{by_hand.id}")
    assert (entry.action, entry.by, entry.before) == ("job.purged", "ann", {"name": "by-hand", "state": "CANCELLED"})


def test_a_purged_job_leaves_no_row_but_the_decision(open_store: OpenStore) -> None:
    check_nothing_is_left(open_store())


def test_so_it_is_on_postgresql(migrated_postgresql: str) -> None:
    store = SqlStore(emptied(migrated_postgresql))
    try:
        check_nothing_is_left(store)
    finally:
        store.close()


def test_a_job_that_has_not_ended_is_not_purged(open_store: OpenStore) -> None:
    store = open_store()
    job = store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job
    with pytest.raises(Conflict, match="cancel it first"):
        store.purge_job(job.id, by="ann", now_s=2.0)
    assert store.ended_jobs(1e12) == ()


def test_the_token_of_a_job_ends_with_the_commit_of_its_end(open_store: OpenStore) -> None:
    store = open_store()
    live = store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job
    store.add_token(digest("live"), user=live.spec.user, scope=Scope.JOB, job_id=live.id, now_s=1.0)
    an_ended_job(store, "ended")
    assert store.identify(digest("ended")) is None and store.identify(digest("live")) is not None


def test_a_key_is_kept_for_its_time_and_then_makes_a_new_job(open_store: OpenStore) -> None:
    store = open_store()
    first = store.submit(a_spec(), key="k", body_hash="h", now_s=DAY_S).job
    assert store.forget_keys(DAY_S) == 0
    assert not store.submit(a_spec(), key="k", body_hash="h", now_s=2 * DAY_S).created
    assert store.forget_keys(DAY_S + 1) == 1
    again = store.submit(a_spec(), key="k", body_hash="h", now_s=2 * DAY_S)
    assert again.created and again.job.id != first.id


def test_a_batch_of_which_a_job_was_purged_answers_with_the_others(open_store: OpenStore) -> None:
    store = open_store()
    one, two = store.submit_many([a_spec(), a_spec()], key="k", body_hash="h", now_s=1.0)
    ended = replace(two.job, state=JobState.FAILED, finished_at_s=2.0)
    store.commit(store.snapshot().version, Changes(jobs=(ended,)))
    store.purge_job(two.job.id, by="ann", now_s=3.0)
    assert [job.id for job in store.submitted(one.job.spec.user, "k", body_hash="h")] == [one.job.id]


def test_a_process_that_saw_a_job_alive_does_not_keep_it_when_it_ended_and_was_purged_meanwhile(
    open_store: OpenStore,
) -> None:
    store, other = open_store(), open_store()
    jobs = [store.submit(a_spec(), key=None, body_hash="h", now_s=1.0).job for _ in range(2)]
    assert set(other.snapshot().jobs) == {job.id for job in jobs}
    ended = replace(jobs[0], state=JobState.CANCELLED, finished_at_s=2.0)
    store.commit(store.snapshot().version, Changes(jobs=(ended,)))
    store.purge_job(ended.id, by="ann", now_s=3.0)
    assert set(other.snapshot().jobs) == set(store.snapshot().jobs) == {jobs[1].id}
    new = store.submit(a_spec(), key=None, body_hash="h", now_s=4.0).job
    assert set(other.snapshot().jobs) == {jobs[1].id, new.id}
