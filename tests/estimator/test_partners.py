"""Beside which job a gang did the steps that it reports."""

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.observing.colocation import colocated, partner_of
from gavel.mechanism.observing.observation import learned
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import GangSeen, GangState, JobState, Observation, Report, ReportKind
from tests.builders import a_cluster, a_job

NOW_S = 100.0


def a_gang(
    kind: str, worker: str = "w0", since_s: float | None = 0.0, until_s: float | None = None, reported_s: float = 10.0
) -> GangSeen:
    state = GangState.WAITING if since_s is None else GangState.RUNNING if until_s is None else GangState.ENDED
    report = Report(sequence=1, kind=ReportKind.PROGRESS, step=100, steps=100, seconds=reported_s)
    return GangSeen(
        job_id=kind,
        generation=1,
        state=state,
        accelerator_type="fast",
        worker_ids=(worker,),
        started_at_s=since_s,
        ended_at_s=until_s,
        reports=(report,) if reported_s else (),
    )


def partners(*gangs: GangSeen) -> set[tuple[str, str | None]]:
    """(kind, partner) of every row of the table, after these gangs, of one job of each kind, have reported."""
    jobs = {
        gang.job_id: a_job(gang.job_id, spec={"kind": gang.job_id}, state=JobState.LEASED, generation=1)
        for gang in gangs
    }
    seen = Observation(observed_at_s=NOW_S, cluster=a_cluster(fast=2), gangs=gangs)
    tick = Tick(now_s=NOW_S, seen=seen, snapshot=Snapshot(version=1, jobs=jobs, tiers={}), jobs=jobs)
    estimator = learned(tick, Layout(seen.cluster), ReconciledThroughputs(), colocated(gangs))
    return {(row.kind, row.partner) for row in estimator.table()}


def test_gangs_on_the_same_workers_are_measured_beside_each_other() -> None:
    assert partners(a_gang("a"), a_gang("b"), a_gang("c", "w1")) == {("a", "b"), ("b", "a"), ("c", None)}


def test_a_gang_that_waits_for_a_worker_is_no_partner() -> None:
    pairs = partners(a_gang("a"), a_gang("b", since_s=None))
    assert ("a", None) in pairs and ("a", "b") not in pairs


def test_the_last_reports_of_a_pair_are_of_the_pair() -> None:
    """Both have ended since the last look, as at the end of a round; or one has, and the other goes on."""
    assert partners(a_gang("a", until_s=99.0), a_gang("b", until_s=99.5)) == {("a", "b"), ("b", "a")}
    assert partners(a_gang("a", until_s=98.0), a_gang("b")) == {("a", "b"), ("b", "a")}


def test_what_was_done_before_a_partner_came_was_done_alone() -> None:
    assert partners(a_gang("a"), a_gang("b", since_s=97.0, reported_s=0.0)) == {("a", None)}
    assert partners(a_gang("a", reported_s=80.0), a_gang("b", since_s=70.0)) == {("a", None), ("b", "a")}


def test_of_two_partners_the_one_that_was_there_for_longer_counts() -> None:
    one, other = a_gang("b", until_s=96.0, reported_s=0.0), a_gang("c", since_s=96.0, reported_s=0.0)
    assert partners(a_gang("a"), one, other) == {("a", "b")}


def test_a_gang_whose_start_has_yet_to_come_was_beside_nobody() -> None:
    """A clock was set back."""
    later = a_gang("a", since_s=NOW_S + 50.0)
    assert partner_of(later, [], NOW_S) is None
    assert partners(later, a_gang("b", since_s=NOW_S + 50.0)) == {("a", None), ("b", None)}


def test_the_last_steps_of_a_gang_beside_one_that_came_after_it_were_done_alone() -> None:
    assert partners(a_gang("a", until_s=95.0), a_gang("b", since_s=95.0, reported_s=5.0)) == {("a", None), ("b", None)}
