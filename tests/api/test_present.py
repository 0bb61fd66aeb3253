"""On a large cluster requests are answered from a state that another thread makes, never one older than its limit."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from api.views import present as module
from api.views.overview import line_of, queue
from api.views.present import AGE_S, Present, PresentReader
from gavel.ports import Snapshot
from gavel.types import Cluster, Job
from tests.builders import a_job

LIMIT_S = 30.0


class Store:
    """Snapshots that a test changes; a read waits while it is held up."""

    def __init__(self, *jobs: Job) -> None:
        self.snapshot = Snapshot(version=1, jobs={job.id: job for job in jobs}, tiers={})
        self.may_read, self.was_read = threading.Event(), threading.Event()
        self.may_read.set()
        self.now_s, self.derived = 0.0, 0

    def read(self) -> Snapshot:
        assert self.may_read.wait(LIMIT_S)
        return self.snapshot

    def derive(self, snapshot: Snapshot) -> Present:
        self.derived += 1
        self.was_read.set()
        return Present(snapshot, Cluster(), (), 0.0)

    def add(self, job: Job) -> None:
        self.snapshot = replace(self.snapshot, jobs={**self.snapshot.jobs, job.id: job})

    def reader(self) -> PresentReader:
        return PresentReader(self.read, self.derive, lambda: self.now_s)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(module, "LARGE_JOBS", 2)
    store = Store(a_job("j1"), a_job("j2"))
    yield store
    store.may_read.set()


def test_of_few_jobs_every_answer_is_of_now() -> None:
    store = Store(a_job("j1"))
    reader = store.reader()
    assert reader.get() is reader.get()
    store.add(a_job("j2"))
    assert list(reader.get().snapshot.jobs) == ["j1", "j2"]


def test_of_many_jobs_nobody_waits_while_the_next_state_is_made(large: Store) -> None:
    """1. A state is there. 2. A job comes, and reading is slow. 3. Requests get the old one. 4. Then the new one."""
    reader = large.reader()
    before = reader.get()
    large.add(a_job("j3"))
    large.may_read.clear()
    large.was_read.clear()
    assert [reader.get() for _ in range(3)] == [before] * 3
    large.may_read.set()
    assert large.was_read.wait(LIMIT_S)
    for thread in threading.enumerate():
        if thread.name == "present":
            thread.join(LIMIT_S)
    assert list(reader.get().snapshot.jobs) == ["j1", "j2", "j3"]
    assert large.derived == 2


def test_a_state_that_is_too_old_is_not_answered_from(large: Store) -> None:
    reader = large.reader()
    reader.get()
    large.add(a_job("j3"))
    large.now_s = AGE_S + 1
    assert list(reader.get().snapshot.jobs) == ["j1", "j2", "j3"]


def test_while_the_next_state_is_made_even_an_old_one_is_answered_from(large: Store) -> None:
    reader = large.reader()
    before = reader.get()
    large.add(a_job("j3"))
    large.may_read.clear()
    assert reader.get() is before, "the next one is being made now"
    large.now_s = AGE_S + 1
    assert reader.get() is before


def test_the_queue_of_all_is_that_of_one_who_may_see_all() -> None:
    jobs = [a_job(f"j{index}", spec={"tier": ("gold", "silver")[index % 2]}) for index in range(6)]
    line = line_of({job.id: job for job in jobs}, None)
    for tier in (None, "gold", "gone"):
        assert queue(line, None, tier=tier, start=1, limit=2) == queue(
            line, lambda _: True, tier=tier, start=1, limit=2
        )
