"""Every report with metrics becomes a point, once, with its lease and its time."""

from gavel.mechanism.observing.metric_points import metric_points
from gavel.mechanism.observing.notes import notes_of
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import GangSeen, GangState, Job, JobState, MetricPoint, Observation, Report, ReportKind
from tests.builders import a_cluster, a_job


def report(sequence: int, step: int, **over: object) -> Report:
    given = {"steps": 1, "seconds": 2.0, "metrics": {"loss": 1 / step}} | over
    return Report(sequence=sequence, kind=ReportKind.PROGRESS, step=step, **given)  # type: ignore[arg-type]


def points(job: Job, *reports: Report, generation: int = 1) -> list[MetricPoint]:
    gang = GangSeen(
        job_id=job.id,
        generation=generation,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=97.0,
        reports=reports,
    )
    seen = Observation(observed_at_s=100.0, cluster=a_cluster(fast=1), gangs=(gang,))
    snapshot = Snapshot(version=1, jobs={job.id: job}, tiers={})
    return list(metric_points(Tick(now_s=100.0, seen=seen, snapshot=snapshot, jobs=dict(snapshot.jobs))))


def a_running_job(**over: object) -> Job:
    return a_job(state=JobState.LEASED, generation=1, **over)


def test_several_reports_between_two_ticks_are_points_of_their_own() -> None:
    first, second, third = points(a_running_job(steps_reported=5), report(1, 10), report(2, 20), report(3, 30))
    assert [(p.previous_step, p.step, p.values["loss"]) for p in (first, second, third)] == [
        (5, 10, 0.1),
        (10, 20, 0.05),
        (20, 30, 1 / 30),
    ]
    assert [p.at_s for p in (first, second, third)] == [97.0, 98.0, 100.0]  # the first not before the gang's start
    assert first.accelerator_type == "fast" and first.generation == 1


def test_reports_that_were_counted_before_and_those_of_other_gangs_are_no_points() -> None:
    job = a_running_job(report_sequence=2)
    assert [p.step for p in points(job, report(1, 10), report(2, 20), report(3, 30))] == [30]
    assert points(job, report(3, 30), generation=2) == []
    assert points(job, report(3, 30, metrics={})) == []


def test_a_note_becomes_an_event_once() -> None:
    job = a_running_job()
    gang = GangSeen(
        job_id=job.id,
        generation=1,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        reports=(report(1, 10, note="Checkpoint 1-10 could not be loaded."), report(2, 11)),
    )
    (event,) = notes_of(job, gang, 5.0)
    assert (event.kind, event.message) == ("checkpoint.unreadable", "Checkpoint 1-10 could not be loaded.")
    assert list(notes_of(a_running_job(report_sequence=1), gang, 5.0)) == []
