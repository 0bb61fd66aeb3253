"""What a decision reads of a job's progress: all steps that were reported count, and none that was lost."""

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.observing.observation import apply_observation
from gavel.mechanism.planning.problem import attained_service_s
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, Job, JobState, Observation, Report, ReportKind
from tests.builders import a_cluster, a_job

RATES = {("mlp", 1, "fast"): 2.0}
CLUSTER = a_cluster(fast=2)


def a_running_job(job_id: str = "j1") -> Job:
    return a_job(job_id, state=JobState.LEASED, generation=1, accounted_until_s=0.0)


def observed(now_s: float, *jobs: Job, **gang: object) -> dict[str, Job]:
    """The jobs after the gang of the first one was seen like that."""
    seen = GangSeen(
        **{"job_id": jobs[0].id, "generation": 1, "accelerator_type": "fast", "worker_ids": ("fast-0",)} | gang
    )  # type: ignore[arg-type]
    stored = {job.id: job for job in jobs}
    tick = Tick(
        now_s=now_s,
        seen=Observation(observed_at_s=now_s, cluster=CLUSTER, gangs=(seen,)),
        snapshot=Snapshot(version=1, jobs=stored, tiers={}),
        jobs=dict(stored),
    )
    apply_observation(
        tick,
        layout=Layout(CLUSTER),
        estimator=OracleThroughputs(RATES),
        lost_retries=10,
        lost_backoff_s=1.0,
        start_limit_s=600.0,
        colocated={},
    )
    return {**stored, **tick.changed}


def progress(step: int, kind: ReportKind = ReportKind.PROGRESS, sequence: int = 1) -> tuple[Report, ...]:
    return (Report(sequence=sequence, kind=kind, step=step, steps=step, seconds=1.0),)


def trained(job: Job, now_s: float = 10.0, *others: Job, **over: object) -> Job:
    return observed(now_s, job, *others, state=GangState.RUNNING, started_at_s=0.0, **over)[job.id]


def test_isolated_time_counts_the_steps_that_no_checkpoint_covers_yet() -> None:
    """As what is left to do leaves them out, a job would else seem to have had less work than it has."""
    job = trained(a_running_job(), reports=progress(20))
    assert (job.steps_done, job.steps_reported) == (0, 20)
    assert job.isolated_time_s == 20 / 2.0  # alone: all of the cluster


def test_isolated_time_of_lost_steps_is_taken_back() -> None:
    job = trained(a_running_job(), reports=progress(20, ReportKind.CHECKPOINT))
    job = trained(job, 20.0, reports=progress(40, sequence=2))
    assert job.isolated_time_s == 40 / 2.0
    gone = GangExit(outcome=GangOutcome.LOST, message="its node is gone")
    job = observed(21.0, job, state=GangState.ENDED, started_at_s=0.0, ended_at_s=21.0, exit=gone)["j1"]
    assert (job.steps_done, job.steps_reported, job.isolated_time_s) == (20, 20, 20 / 2.0)


def test_a_job_that_comes_this_very_moment_had_no_part_of_the_time_before() -> None:
    others = [a_job(f"k{index}", submitted_at_s=at_s) for index, at_s in enumerate((3.0, 4.0, 5.0, 10.0))]
    job = trained(a_running_job(), 10.0, *others, reports=progress(20))
    assert job.isolated_time_s == 20 / (2.0 * 2 / 4)  # a half of a worker, four at once on two


def test_attained_service_counts_time_that_no_report_has_shown_yet() -> None:
    """Steps may take longer than rounds."""
    job = a_running_job()
    assert attained_service_s(job, 30.0) == 30.0
    assert attained_service_s(a_job(received_s={"fast": 12.0}), 30.0) == 12.0
