"""Interactive sessions: never ended before what was granted or while they are used, always ended after."""

from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.jobs.interactive import ends_at_s, why_over
from gavel.mechanism.observing.sessions import LastUse
from gavel.ports import JobEdit
from gavel.types import Job, JobState, Lease, Reason, Tier
from tests.builders import a_cluster, a_job
from tests.conftest import IS_FULL
from tests.mechanism.world import World

ENDLESS = 10**9
INSTANTS = st.floats(0, 1e6)
SECONDS = st.floats(1, 1e5)


def a_session(longest_s: float = 60.0, started_at_s: float | None = 0.0, idle_s: float | None = None) -> Job:
    spec = {"preemptible": False, "longest_s": longest_s, "idle_s": idle_s}
    return a_job("s", spec=spec, state=JobState.LEASED, generation=1, started_at_s=started_at_s)


class Session:
    """One session in a world with other users' jobs that want its worker; `used_s` is when it was last used."""

    def __init__(
        self, *, longest_s: float = 35.0, idle_s: float | None = None, others: int = 2, **settings: Any
    ) -> None:
        self.used_s = 0.0
        self.world = World(cluster=a_cluster(fast=1), **settings)
        self.start_service()
        spec = {"preemptible": False, "longest_s": longest_s, "idle_s": idle_s, "user": "ann", "priority": 1}
        self.id = self.world.submit(ENDLESS, **spec)
        self.others = [self.world.submit(ENDLESS, user="bob") for _ in range(others)]

    def last_use(self, job_id: str, generation: int) -> float | None:
        assert (job_id, generation) == (self.id, self.job.generation)
        return self.used_s

    def start_service(self, last_use: LastUse | None = None) -> None:
        self.world.driver = self.world.new_driver(last_use=last_use or self.last_use)

    @property
    def job(self) -> Job:
        return self.world.job(self.id)

    @property
    def leases(self) -> list[Lease]:
        return self.world.leases_of(self.id)

    def start(self) -> float:
        """Let it run; when its program started."""
        self.world.run(lambda: self.job.started_at_s is not None)
        assert self.job.started_at_s is not None
        return self.job.started_at_s


@given(started_s=INSTANTS, longest_s=SECONDS, idle_s=st.none() | SECONDS, used_s=st.none() | INSTANTS, now_s=INSTANTS)
def test_a_session_is_over_exactly_from_its_end_on(
    started_s: float, longest_s: float, idle_s: float | None, used_s: float | None, now_s: float
) -> None:
    job = a_session(longest_s, started_s, idle_s)
    end_s = ends_at_s(job, used_s)
    assert bool(why_over(job, used_s, now_s)) is (end_s <= now_s)
    assert end_s <= started_s + longest_s
    if idle_s is None or used_s is None:
        assert end_s == started_s + longest_s
    else:
        assert end_s >= min(started_s + longest_s, started_s + idle_s)
        assert end_s >= min(started_s + longest_s, used_s + idle_s)


def test_one_that_has_not_started_has_no_end_yet() -> None:
    job = a_session(started_at_s=None, idle_s=5.0)
    assert ends_at_s(job, 0.0) == inf
    assert why_over(job, 0.0, 1e9) == ""


def test_it_keeps_its_worker_for_what_was_granted_and_is_completed_then() -> None:
    session = Session()
    started_s = session.start()
    session.world.run(lambda: session.job.state.is_terminal)
    job = session.job
    assert (job.state, job.reason, job.preemptions, job.attempt) == (JobState.COMPLETED, Reason.COMPLETED, 0, 1)
    assert "35 s that it was granted" in job.message
    assert job.finished_at_s is not None
    assert started_s + 35.0 <= job.finished_at_s <= started_s + 40.0
    assert len({(lease.generation, lease.worker_ids, lease.is_profiling) for lease in session.leases}) == 1
    session.world.run(lambda: any(session.world.job(each).state is JobState.LEASED for each in session.others))


def test_it_ends_when_nobody_has_used_it_and_not_before() -> None:
    session = Session(longest_s=1000.0, idle_s=20.0)
    started_s = session.start()
    session.used_s = started_s + 15.0
    session.world.run_until_s(started_s + 34.0)
    assert session.job.state is JobState.LEASED
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.state is JobState.COMPLETED
    assert "Nobody was connected to the session" in session.job.message
    assert session.job.finished_at_s is not None
    assert session.job.finished_at_s < started_s + 40.0


def test_it_lasts_longer_once_it_is_extended() -> None:
    session = Session()
    started_s = session.start()
    session.world.store.edit_job(session.id, JobEdit(longest_s=95.0), expected_version=None, now_s=1.0)
    session.world.run_until_s(started_s + 90.0)
    assert session.job.state is JobState.LEASED
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.state is JobState.COMPLETED


def test_one_that_is_paused_when_its_time_is_over_is_completed_without_a_gang() -> None:
    session = Session()
    session.start()
    session.world.store.request_pause(session.id, is_paused=True, now_s=5.0)
    session.world.run(lambda: session.job.state is JobState.QUEUED)
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.state is JobState.COMPLETED


def test_one_that_is_cancelled_is_cancelled() -> None:
    session = Session()
    session.start()
    session.world.store.request_cancel(session.id, now_s=5.0)
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.state is JobState.CANCELLED


def test_a_month_that_is_spent_does_not_end_it() -> None:
    session = Session()
    started_s = session.start()
    spent = Tier(name="default", accelerator_hours_per_month=0.0)
    version = next(tier.version for tier in session.world.store.tiers() if tier.name == "default")
    session.world.store.put_tier(spent, expected_version=version, by="op", now_s=1.0)
    session.world.run_until_s(started_s + 34.0)
    assert (session.job.state, session.job.preemptions) == (JobState.LEASED, 0)


@pytest.mark.parametrize("restart_after_s", [3.0, 17.0, 34.0])
def test_a_restart_neither_ends_it_nor_forgets_its_end(restart_after_s: float) -> None:
    session = Session()
    started_s = session.start()
    session.world.run_until_s(started_s + restart_after_s)
    session.start_service()
    session.world.run_until_s(started_s + 34.5)
    assert (session.job.state, session.job.preemptions) == (JobState.LEASED, 0)
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.finished_at_s is not None
    assert (session.job.state, session.job.attempt) == (JobState.COMPLETED, 1)
    assert session.job.finished_at_s <= started_s + 40.0


def test_one_whose_time_ends_while_the_service_is_away_is_completed_when_it_is_back() -> None:
    session = Session()
    started_s = session.start()
    session.world.clock.wait(started_s + 300.0)
    session.start_service()
    session.world.run(lambda: session.job.state.is_terminal)
    assert (session.job.state, session.job.attempt) == (JobState.COMPLETED, 1)


@settings(max_examples=60 if IS_FULL else 6)
@given(longest_s=st.integers(12, 90), others=st.integers(0, 3), restarts=st.sets(st.integers(1, 90), max_size=3))
def test_never_preempted_before_its_end_and_always_ended_after(longest_s: int, others: int, restarts: set[int]) -> None:
    session = Session(longest_s=float(longest_s), others=others)
    started_s = session.start()
    for restart_s in sorted(each for each in restarts if each < longest_s):
        session.world.run_until_s(started_s + restart_s)
        session.start_service()
    session.world.run_until_s(started_s + longest_s - 0.5)
    assert (session.job.state, session.job.preemptions, session.job.generation) == (JobState.LEASED, 0, 1)
    session.world.run(lambda: session.job.state.is_terminal)
    assert session.job.state is JobState.COMPLETED
    assert session.job.finished_at_s is not None
    assert session.job.finished_at_s <= started_s + longest_s + 5.0


@pytest.mark.parametrize(("backend", "is_whole"), [("local", True), ("slurm", False)])
def test_on_the_local_backend_its_lease_lasts_to_its_end(backend: str, is_whole: bool) -> None:
    """So its program outlasts any time without a service; elsewhere a lost gang must be known to have ended."""
    session = Session(longest_s=1000.0, backend=backend)
    started_s = session.start()
    session.world.run_until_s(started_s + 3.0)
    lease_s = session.world.backend.lease_end_s(session.id)
    assert (lease_s == started_s + 1000.0) is is_whole
    if is_whole:
        session.world.store.edit_job(session.id, JobEdit(longest_s=2000.0), expected_version=None, now_s=1.0)
        session.world.run_until_s(started_s + 6.0)
        assert session.world.backend.lease_end_s(session.id) == started_s + 2000.0


def test_it_goes_on_while_the_service_is_away_for_many_rounds() -> None:
    session = Session(longest_s=1000.0)
    started_s = session.start()
    session.world.run_until_s(started_s + 3.0)
    session.world.clock.wait(started_s + 300.0)
    session.start_service()
    session.world.run_until_s(started_s + 350.0)
    assert (session.job.state, session.job.generation, session.job.losses) == (JobState.LEASED, 1, 0)
    session.world.run(lambda: session.job.state.is_terminal)
    assert (session.job.state, session.job.attempt) == (JobState.COMPLETED, 1)
