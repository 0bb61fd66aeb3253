"""What a driver hands from one part to another: settings, what was planned before, and what changes nothing."""

from dataclasses import replace

import pytest

from gavel.errors import InvariantViolated
from gavel.mechanism import driver as driver_module
from gavel.mechanism.jobs.events import EventKind
from gavel.mechanism.planning.backfill import Gap, backfill
from gavel.ports import AuditEntry, Changes, CordonNode, LaunchGang
from gavel.types import Cluster, DiskState, Expected, JobState, Prediction, Reason, RoundPlan
from tests.builders import a_cluster
from tests.mechanism.recorded import Recorded


def test_a_driver_that_has_not_ticked_yet_is_idle_and_well() -> None:
    driver = Recorded().driver
    assert (driver.ticks, driver.newest_round, driver.is_idle) == (0, (0, 0.0), True)
    assert (driver.skipped, driver.halted) == ("", None)


def test_a_cluster_without_nodes_is_nothing_to_write_down() -> None:
    world = Recorded(cluster=Cluster())
    assert world.tick() == (float("inf"), [], [])


def test_a_service_that_has_measured_nothing_yet_stores_no_estimates_with_an_event() -> None:
    """The event comes before the first round, too: there is no round yet that could explain anything."""
    world = Recorded()
    waiting = world.submit(50)
    world.store.request_cancel(waiting, now_s=0.0)
    _, (changes,), _ = world.tick(0.0)
    assert ([event.kind for event in changes.events], changes.throughputs) == ([EventKind.CANCELLED], None)


def test_a_cluster_with_cordons_of_its_own_is_told_what_an_operator_asked_for() -> None:
    world = Recorded()
    world.backend.cordons = {"node-0": False}
    world.tick(0.0)
    world.ask("node.cordon", "node/node-0")
    assert world.tick(1.0)[2] == [CordonNode(node="node-0", is_cordoned=True)]


def test_prices_that_the_operator_states_are_those_of_the_stored_cluster() -> None:
    world = Recorded(prices_usd_per_hour={"fast": 2.5})
    (changes,) = world.tick(0.0)[1]
    assert changes.cluster is not None
    assert [worker.price_usd_per_hour for worker in changes.cluster.workers] == [2.5, 2.5]


def test_a_gang_that_is_given_up_for_another_job_is_in_the_audit_log() -> None:
    world = Recorded(cluster=a_cluster(fast=1))
    first, second = world.submit(10_000), world.submit(10_000)
    world.tick(0.0)
    _, (changes,), _ = world.tick(7.5)
    assert changes.round is not None
    entry = AuditEntry(
        at_s=7.5,
        by="hierarchical",
        subject=f"job/{first}",
        before={"accelerator_type": "fast", "worker_ids": ["fast-0"]},
        after={"given_to": {"fast-0": second}, "allocation_digest": changes.round.plan.allocation_digest},
        action="gang.preempted",
        user="ann",
        round_index=2,
    )
    assert changes.audit == (entry,)


def test_jobs_that_wait_are_told_why_with_each_round_and_not_in_between() -> None:
    world = Recorded(cluster=a_cluster(fast=1))
    world.submit(10_000)
    world.tick(0.0)
    later = [world.submit(10_000) for _ in range(3)]
    world.tick(1.0)
    assert {world.job(each).reason for each in later} == {Reason.PENDING_EVALUATION}
    world.tick(7.5)
    reasons = sorted(world.job(each).reason.value for each in later)
    assert Reason.PENDING_EVALUATION.value not in reasons


def test_a_reason_that_says_something_else_by_now_is_written_again() -> None:
    world = Recorded()
    disk = DiskState(over_budget={"ann": "2 MB too much."})
    world.driver = world.new_driver(disk=lambda: disk)
    job_id = world.submit(100)
    world.tick(0.0)
    disk = DiskState(over_budget={"ann": "3 MB too much."})
    world.tick(1.0)
    assert (world.job(job_id).reason, world.job(job_id).message) == (Reason.DISK_BUDGET_EXCEEDED, "3 MB too much.")


def test_a_gang_that_was_planned_is_not_launched_once_the_disk_is_full() -> None:
    world = Recorded(cluster=a_cluster(fast=1))
    disk = DiskState()
    world.driver = world.new_driver(disk=lambda: disk)
    world.submit(10_000)
    second = world.submit(10_000)
    world.tick(0.0)
    world.tick(7.5)
    disk = DiskState(low="2 MB are free.", low_since_s=9.0)
    instructions = world.tick(10.0)[2]
    assert not [each for each in instructions if isinstance(each, LaunchGang)]
    assert (world.job(second).state, world.job(second).reason) == (JobState.QUEUED, Reason.LOW_DISK)


def test_a_job_that_names_one_that_ended_before_starts_by_how_that_is_stored() -> None:
    """The driver has not seen it end: the store says how."""
    world = Recorded()
    first = world.submit(50)
    world.tick(0.0)
    second, third = (world.submit(50, after=(first,)) for _ in range(2))
    ended = replace(world.job(first), state=JobState.COMPLETED, finished_at_s=1.0)
    world.store.commit(world.store.snapshot().version, Changes(jobs=(ended,)))
    world.tick(10.0)
    assert {world.job(each).state for each in (second, third)} == {JobState.LEASED}


def test_the_failure_of_a_job_whose_predecessor_failed_is_an_event_of_that_instant() -> None:
    world = Recorded()
    first = world.submit(50)
    world.tick(0.0)
    second = world.submit(50, after=(first,))
    world.store.request_cancel(first, now_s=1.0)
    for at_s in (2.0, 3.0):
        world.tick(at_s)
    newest = world.store.events(second)[-1]
    assert (newest.kind, newest.message) == (
        EventKind.REFUSED,
        f"This job was to run after job {first}, which is CANCELLED.",
    )
    assert newest.at_s == world.job(second).finished_at_s == 3.0


def test_a_gap_that_nobody_can_fill_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew when something has changed; one that was filled is looked at each time."""
    looked: list[float] = []
    world = Recorded()

    def watched(gap: Gap) -> RoundPlan | None:
        looked.append(gap.now_s)
        return backfill(gap)

    monkeypatch.setattr(driver_module, "backfill", watched)
    world.submit(10_000)
    world.tick(0.0)
    world.submit(10_000, scale_factor=2)
    for at_s in (1.0, 2.0, 3.0):
        world.tick(at_s)
    world.submit(10_000, scale_factor=2)
    world.tick(4.0)
    assert looked == [1.0, 4.0]


def test_a_gap_whose_filling_breaks_an_invariant_halts_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Recorded()

    def breaks(_: object) -> None:
        raise InvariantViolated("one_lease_per_job", "job j1 has two")

    monkeypatch.setattr(driver_module, "backfill", breaks)
    world.submit(10_000)
    world.tick(0.0)
    waiting = world.submit(10_000)
    world.tick(1.0)
    assert world.driver.halted == "one_lease_per_job: job j1 has two"
    monkeypatch.undo()
    world.tick(2.0)
    assert world.job(waiting).state is JobState.QUEUED


def test_predictions_are_as_wide_as_those_of_the_past_were_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs in the past took twice as long as predicted: so may this one."""
    past = [
        Prediction(
            job_id=f"j{index}",
            made_at_s=0.0,
            finish=Expected(at_s=50.0, low_s=0.0, high_s=0.0),
            start=Expected(at_s=0.0, low_s=0.0, high_s=0.0),
            started_at_s=0.0,
            finished_at_s=100.0,
        )
        for index in range(40)
    ]
    widths = []
    for predictions in ([], past):
        world = Recorded()
        monkeypatch.setattr(world.kept, "predictions", lambda each=predictions: each)
        world.submit(100)
        (finish,) = (each.finish for each in world.tick(0.0)[1][0].predictions)
        widths.append((finish.low_s / finish.at_s, finish.high_s / finish.at_s))
    (low, high), (low_of_late, high_of_late) = widths
    assert (low_of_late, high_of_late > 1.5 * high) == (low, True)


def test_a_round_measures_what_it_is_told_to_choose_and_else_all_that_nobody_knows() -> None:
    for choose_profiling, measures in ((None, True), (lambda *_, **__: (), False)):
        world = Recorded()
        world.driver = world.new_driver(choose_profiling=choose_profiling)
        world.submit(100)
        (changes,) = world.tick(0.0)[1]
        assert changes.round is not None
        assert [lease.is_profiling for lease in changes.round.plan.leases] == [measures]
