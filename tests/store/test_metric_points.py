"""The curves of metrics: bounded, first and newest kept, lost steps replaced, forgotten with the history."""

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.ports import Changes
from gavel.store.samples import round_record
from gavel.store.sql import SqlStore
from gavel.types import JobId, MetricPoint
from gavel.types.metrics import POINTS_PER_JOB, spacing_of
from tests.builders import a_spec
from tests.conftest import IS_FULL
from tests.store.conftest import OpenStore


def points(job_id: JobId, steps: Sequence[int], *, after: int = 0, generation: int = 1) -> tuple[MetricPoint, ...]:
    return tuple(
        MetricPoint(
            job_id=job_id,
            generation=generation,
            accelerator_type="fast",
            previous_step=before,
            step=step,
            at_s=1000.0 + step,
            values={"loss": 1 / step, "error": 0.5},
        )
        for before, step in zip([after, *steps], steps, strict=False)
    )


def commit(store: SqlStore, *new: MetricPoint) -> None:
    store.commit(store.snapshot().version, Changes(metric_points=new))


def a_stored_job(store: SqlStore) -> JobId:
    return store.submit(a_spec(tier="default", total_steps=10**9), key=None, body_hash="", now_s=1.0).job.id


def kept_steps(store: SqlStore, job_id: JobId) -> list[int]:
    return [point.step for point in store.metric_points(job_id)]


def test_every_report_of_a_short_job_is_kept_with_its_lease_and_values(open_store: OpenStore) -> None:
    store = open_store()
    job_id, other = a_stored_job(store), a_stored_job(store)
    first, second, third = points(job_id, [3, 7, 9])
    commit(store, first, second, *points(other, [5]))
    commit(store, third)
    assert store.metric_points(job_id) == points(job_id, [3, 7, 9])
    assert kept_steps(store, other) == [5]


@pytest.mark.full
def test_a_long_job_keeps_at_most_a_thousand_points_with_the_first_and_the_newest(open_store: OpenStore) -> None:
    store = open_store()
    job_id = a_stored_job(store)
    for start in range(1, 9_000, 500):
        commit(store, *points(job_id, range(start, start + 500), after=start - 1))
    kept = kept_steps(store, job_id)
    assert len(kept) <= POINTS_PER_JOB + 1 and kept[0] == 1 and kept[-1] == 9_000
    assert kept[1:] == sorted(set(kept[1:])) and spacing_of(9_000) == 16
    assert all(later - earlier <= 16 for earlier, later in itertools.pairwise(kept[1:]))


def test_steps_that_are_done_again_replace_those_that_were_lost(open_store: OpenStore) -> None:
    store = open_store()
    job_id = a_stored_job(store)
    commit(store, *points(job_id, [10, 20, 30, 40]))
    commit(store, *points(job_id, [25], after=20, generation=2))  # from the checkpoint of step 20
    assert [(p.step, p.generation) for p in store.metric_points(job_id)] == [(10, 1), (20, 1), (25, 2)]
    commit(store, *points(job_id, [25], after=25, generation=2))  # a checkpoint's report of the same step
    assert kept_steps(store, job_id) == [10, 20, 25]


def test_a_first_point_of_the_same_step_is_replaced(open_store: OpenStore) -> None:
    store = open_store()
    job_id = a_stored_job(store)
    commit(store, *points(job_id, [4]))
    commit(store, *points(job_id, [4, 8], generation=2))
    assert [(p.step, p.generation) for p in store.metric_points(job_id)] == [(4, 2), (8, 2)]


@pytest.fixture(scope="module")
def store(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    """One store for all examples: a job each."""
    opened = SqlStore(f"sqlite:///{shutil.copy(empty_database, tmp_path_factory.mktemp('metrics') / 'gavel.db')}")
    yield opened
    opened.close()


@settings(max_examples=25 if IS_FULL else 6, deadline=None)
@given(
    ticks=st.lists(st.lists(st.integers(1, 700), min_size=1, max_size=8), min_size=1, max_size=12),
    back=st.lists(st.integers(0, 2000), max_size=12),
)
def test_any_history_is_bounded_and_grows_in_steps(store: SqlStore, ticks: list[list[int]], back: list[int]) -> None:
    """Whatever the steps between reports are, and however many of them are lost between two commits."""
    job_id, done = a_stored_job(store), 0
    for index, gaps in enumerate(ticks):
        steps = [done + sum(gaps[: i + 1]) for i in range(len(gaps))]
        commit(store, *points(job_id, steps, after=done, generation=index + 1))
        kept = kept_steps(store, job_id)
        assert kept[-1] == steps[-1] and len(kept) <= POINTS_PER_JOB + 1
        done = max(0, steps[-1] - (back[index] if index < len(back) else 0))


def test_old_points_are_forgotten_with_the_history(open_store: OpenStore) -> None:
    store = open_store(keep_events_s=100.0)
    job_id = a_stored_job(store)
    commit(store, *(replace(point, at_s=point.step) for point in points(job_id, [1, 2, 500])))
    record = round_record(1, job_id)
    store.commit(store.snapshot().version, Changes(round=replace(record, plan=replace(record.plan, starts_at_s=200.0))))
    assert kept_steps(store, job_id) == [500]
