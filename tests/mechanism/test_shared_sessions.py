"""Two sessions on the same accelerators, where both let another there."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.mechanism.planning.shared_sessions import shares
from gavel.types import Cluster, Job, JobState, Tier, Worker, worker_s_of
from tests.builders import a_cluster, a_job
from tests.conftest import IS_FULL
from tests.mechanism.world import World

ENDLESS = 10**9


class Notebooks:
    """A world with a training of another user, and sessions that let another onto their accelerators."""

    def __init__(self, cluster: Cluster | None = None, others: int = 2, **world: Any) -> None:
        self.world = World(cluster=cluster or a_cluster(fast=1), **world)
        self.others = [self.world.submit(ENDLESS, user="bob") for _ in range(others)]

    def open(self, longest_s: float = 60.0, share: float = 0.5, **spec: Any) -> str:
        fields = {"preemptible": False, "longest_s": longest_s, "accelerator_share": share, "priority": 1}
        return self.world.submit(ENDLESS, **fields | spec)

    def job(self, job_id: str) -> Job:
        return self.world.job(job_id)

    def runs(self, *job_ids: str) -> bool:
        return all(self.job(each).state is JobState.LEASED for each in job_ids)

    def workers_of(self, job_id: str) -> tuple[str, ...]:
        return self.world.leases_of(job_id)[-1].worker_ids


def test_a_second_one_joins_the_first_and_neither_is_preempted() -> None:
    notebooks = Notebooks()
    first = notebooks.open(longest_s=100.0)
    notebooks.world.run(lambda: notebooks.runs(first))
    second = notebooks.open(longest_s=50.0)
    notebooks.world.run(lambda: notebooks.runs(first, second))
    assert notebooks.workers_of(first) == notebooks.workers_of(second) == ("fast-0",)
    notebooks.world.run(lambda: notebooks.job(second).state.is_terminal)
    third = notebooks.open(longest_s=20.0)
    notebooks.world.run(lambda: notebooks.job(third).state.is_terminal)
    notebooks.world.run(lambda: notebooks.job(first).state.is_terminal)
    for each in (first, second, third):
        job = notebooks.job(each)
        assert (job.state, job.preemptions, job.attempt) == (JobState.COMPLETED, 0, 1), job.message
    notebooks.world.run(lambda: any(notebooks.runs(each) for each in notebooks.others))


def test_one_that_starts_again_elsewhere_in_the_round_is_no_partner_any_more() -> None:
    """Its gang ended and the next one is on another worker at once, so the round has two leases of it."""
    notebooks = Notebooks(a_cluster(fast=2), others=0)
    first = notebooks.open(longest_s=200.0)
    notebooks.world.run(lambda: notebooks.runs(first))
    blocker, second = notebooks.open(longest_s=40.0, share=1.0), notebooks.open(longest_s=100.0)
    notebooks.world.run(lambda: notebooks.runs(first, blocker, second))
    assert notebooks.workers_of(first) == notebooks.workers_of(second)
    notebooks.world.run(lambda: notebooks.job(blocker).state.is_terminal)
    for is_paused, state in ((True, JobState.QUEUED), (False, JobState.LEASED)):
        notebooks.world.store.request_pause(second, is_paused=is_paused, now_s=notebooks.world.clock.now_s())
        notebooks.world.run(lambda state=state: notebooks.job(second).state is state)  # type: ignore[misc]
    assert notebooks.workers_of(first) != notebooks.workers_of(second)
    notebooks.world.run(lambda: all(notebooks.job(each).state is JobState.COMPLETED for each in (first, second)))
    assert notebooks.world.leases_of(first)[-1].combination == (first,)


def test_what_is_charged_is_half_while_they_share() -> None:
    notebooks = Notebooks(others=0)
    first = notebooks.open(longest_s=100.0)
    notebooks.world.run(lambda: notebooks.runs(first))
    second = notebooks.open(longest_s=300.0)
    notebooks.world.run(lambda: notebooks.job(second).state.is_terminal)
    seconds = [sum(worker_s_of(notebooks.job(each)).values()) for each in (first, second)]
    started = [notebooks.job(each).started_at_s or 0.0 for each in (first, second)]
    ended = notebooks.job(second).finished_at_s or 0.0
    assert sum(seconds) == pytest.approx(ended - started[0], rel=0.05), "no second of the worker counts twice"
    assert seconds[0] < 0.7 * 100.0


@pytest.mark.parametrize("shares_of", [(0.5, 1.0), (1.0, 0.5), (1.0, 1.0)])
def test_nobody_joins_or_is_joined_who_did_not_say_so(shares_of: tuple[float, float]) -> None:
    notebooks = Notebooks(others=0)
    first = notebooks.open(share=shares_of[0])
    notebooks.world.run(lambda: notebooks.runs(first))
    second = notebooks.open(share=shares_of[1])
    notebooks.world.run_until_s(50.0)
    assert notebooks.job(second).state is JobState.QUEUED
    notebooks.world.run(lambda: notebooks.runs(second))


@pytest.mark.parametrize("preemptible", [True, False])
def test_no_policy_packs_a_session_that_keeps_its_accelerators_for_itself(preemptible: bool) -> None:
    """What others would be offered as a pair: it fits into the memory, and nobody has measured it."""
    workers = (Worker(id="fast-0", node="node-0", accelerator_type="fast", memory_bytes=16),)
    notebooks = Notebooks(Cluster(nodes=a_cluster(fast=1).nodes, workers=workers), others=0)
    fits = {"accelerator_memory_bytes": 4}
    session = notebooks.open(share=1.0, longest_s=100.0, **fits)
    other = notebooks.world.submit(ENDLESS, **fits) if preemptible else notebooks.open(share=1.0, **fits)
    notebooks.world.run(lambda: notebooks.job(session).state.is_terminal)
    assert all(len(lease.combination) == 1 for each in (session, other) for lease in notebooks.world.leases_of(each))


def test_both_have_to_fit_into_the_memory_that_they_state() -> None:
    workers = (Worker(id="fast-0", node="node-0", accelerator_type="fast", memory_bytes=16),)
    notebooks = Notebooks(Cluster(nodes=a_cluster(fast=1).nodes, workers=workers), others=0)
    first = notebooks.open(accelerator_memory_bytes=10)
    notebooks.world.run(lambda: notebooks.runs(first))
    large, small = notebooks.open(accelerator_memory_bytes=7), notebooks.open(accelerator_memory_bytes=6)
    notebooks.world.run(lambda: notebooks.runs(small))
    assert notebooks.job(large).state is JobState.QUEUED


def test_the_limit_of_a_tier_counts_halves() -> None:
    """With 1 worker for sessions of the tier two fit onto it, and a third waits."""
    notebooks = Notebooks(a_cluster(fast=3), others=0)
    tier = Tier(name="lab", non_preemptible_workers=1)
    notebooks.world.store.put_tier(tier, expected_version=None, by="op", now_s=0.0)
    first = notebooks.open(tier="lab")
    notebooks.world.run(lambda: notebooks.runs(first))
    second, third = notebooks.open(tier="lab"), notebooks.open(tier="lab")
    notebooks.world.run(lambda: notebooks.runs(second))
    assert notebooks.job(third).state is JobState.QUEUED
    assert "hold 1 of the 1 workers that tier lab lets them hold" in notebooks.job(third).message


def test_a_restart_changes_nothing_and_each_round_can_be_verified() -> None:
    notebooks = Notebooks()
    first = notebooks.open(longest_s=100.0)
    notebooks.world.run(lambda: notebooks.runs(first))
    second = notebooks.open(longest_s=100.0)
    notebooks.world.run(lambda: notebooks.runs(second))
    notebooks.world.driver = notebooks.world.new_driver()
    notebooks.world.run_until_s(60.0)
    assert notebooks.runs(first, second)
    assert [notebooks.job(each).generation for each in (first, second)] == [1, 1]
    records = [notebooks.world.store.round(plan.round_index) for plan in reversed(notebooks.world.store.rounds())]
    for before, record in pairwise(records):
        again = planned_again(record, before.lag_rounds)
        assert again is not None
        assert differences(record.plan, again) == ((), ())


def test_nobody_joins_who_would_be_in_the_way_of_a_reservation() -> None:
    notebooks = Notebooks(others=0)
    reserved = {"reserved_at_s": 150.0, "reserved_type": "fast", "share": 1.0}
    first, later = notebooks.open(longest_s=100.0), notebooks.open(longest_s=50.0, **reserved)
    notebooks.world.run(lambda: notebooks.runs(first))
    long, short = notebooks.open(longest_s=300.0), notebooks.open(longest_s=30.0)
    notebooks.world.run(lambda: notebooks.runs(short))
    assert notebooks.job(long).state is JobState.QUEUED
    notebooks.world.run(lambda: notebooks.job(later).started_at_s is not None)
    assert notebooks.job(later).started_at_s == pytest.approx(150.0, abs=2.0)
    notebooks.world.run(lambda: notebooks.world.is_done(long, short, later, first))


def test_only_sessions_share() -> None:
    assert shares(a_job(spec={"longest_s": 60.0, "accelerator_share": 0.5}))
    assert not shares(a_job(spec={"longest_s": 60.0}))
    assert not shares(a_job(spec={"accelerator_share": 0.5}))


@settings(max_examples=100 if IS_FULL else 8, deadline=None)
@given(
    sessions=st.lists(st.tuples(st.integers(2, 12), st.sampled_from([0.5, 1.0]), st.integers(1, 2)), max_size=8),
    restart_s=st.integers(5, 100),
)
def test_never_more_than_two_on_a_worker_and_all_have_their_time(
    sessions: list[tuple[int, float, int]], restart_s: int
) -> None:
    rates = {("mlp", size, "fast"): 10.0 for size in (1, 2)}
    notebooks = Notebooks(a_cluster(fast=2), rates=rates)
    ids = [notebooks.open(10.0 * tens, share, scale_factor=size) for tens, share, size in sessions]
    notebooks.world.run_until_s(float(restart_s))
    notebooks.world.driver = notebooks.world.new_driver()
    notebooks.world.run(lambda: notebooks.world.is_done(*ids), ticks=4000)
    for plan in notebooks.world.store.rounds(limit=1000):
        holders: dict[str, int] = {}
        for worker in (each for lease in plan.leases if lease.starts_at_s is None for each in lease.worker_ids):
            holders[worker] = holders.get(worker, 0) + 1
        assert all(count <= 2 for count in holders.values())
    for each in ids:
        job = notebooks.job(each)
        assert (job.preemptions, job.attempt) == (0, 1)
