from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.observing.observation import learned
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import GangSeen, GangState, Job, JobState, Observation, Report, ReportKind
from tests.builders import a_cluster, a_job


def running(job: Job, worker: str, state: GangState = GangState.RUNNING) -> GangSeen:
    report = Report(sequence=1, kind=ReportKind.PROGRESS, step=100, steps=100, seconds=10.0)
    return GangSeen(
        job_id=job.id,
        generation=job.generation,
        state=state,
        accelerator_type="fast",
        worker_ids=(worker,),
        reports=(report,),
    )


def partners(*gangs: tuple[str, str, GangState]) -> set[tuple[str, str | None]]:
    """(kind, partner) of every row of the table, after gangs of (kind, worker, state) reported."""
    jobs = {kind: a_job(kind, spec={"kind": kind}, state=JobState.LEASED, generation=1) for kind, _, _ in gangs}
    seen = Observation(
        observed_at_s=0.0,
        cluster=a_cluster(fast=2),
        gangs=tuple(running(jobs[kind], worker, state) for kind, worker, state in gangs),
    )
    tick = Tick(now_s=0.0, seen=seen, snapshot=Snapshot(version=1, jobs=jobs, tiers={}), jobs=jobs)
    return {(row.kind, row.partner) for row in learned(tick, Layout(seen.cluster), ReconciledThroughputs()).table()}


def test_gangs_on_the_same_workers_are_measured_beside_each_other() -> None:
    both = GangState.RUNNING
    assert partners(("a", "w0", both), ("b", "w0", both), ("c", "w1", both)) == {("a", "b"), ("b", "a"), ("c", None)}


def test_a_gang_that_waits_for_a_worker_is_no_partner() -> None:
    pairs = partners(("a", "w0", GangState.RUNNING), ("b", "w0", GangState.WAITING))
    assert ("a", None) in pairs and ("a", "b") not in pairs
