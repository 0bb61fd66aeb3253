"""What the driver reads off jobs and rounds: measurements, isolated time, what to profile."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gavel.mechanism.placement import Layout
from gavel.mechanism.problem import Estimate, equal_share_rate, isolated_share, rates_of
from gavel.ports import ThroughputEstimator
from gavel.types import (
    AcceleratorType,
    AllocationProblem,
    GangSeen,
    Job,
    JobId,
    Measurement,
)


def measurements_of(job: Job, gang: GangSeen, layout: Layout, partner: str | None = None) -> tuple[Measurement, ...]:
    """What a gang's new reports measured, beside a job of kind `partner` if any; `job` as it was before them."""
    return tuple(
        replace(
            _measurement(job, gang, layout, partner),
            sequence=report.sequence,
            steps=report.steps,
            seconds=report.seconds,
            is_representative=report.is_representative,
        )
        for report in gang.reports
        if report.steps > 0 and report.sequence > job.report_sequence
    )


def silence_of(
    job: Job, gang: GangSeen, layout: Layout, partner: str | None, *, now_s: float, round_s: float
) -> tuple[Measurement, ...]:
    """That a gang has not done its first step beside a partner, a round after its start: the two may not fit at all."""
    began_s = gang.started_at_s
    if partner is None or began_s is None or job.trained_steps or gang.reports or now_s - began_s < round_s:
        return ()
    return (replace(_measurement(job, gang, layout, partner), seconds=now_s - began_s),)


def _measurement(job: Job, gang: GangSeen, layout: Layout, partner: str | None) -> Measurement:
    """Of no steps yet."""
    return Measurement(
        job_id=job.id,
        token=gang.token,
        sequence=job.report_sequence,
        user=job.spec.user,
        kind=job.spec.kind,
        scale_factor=job.spec.scale_factor,
        accelerator_type=gang.accelerator_type,
        steps=0,
        seconds=0.0,
        partner=partner,
        placement="spread" if _is_spread(gang, layout) else "consolidated",
        stated_steps_per_s=job.spec.throughput_steps_per_s.get(gang.accelerator_type),
    )


def _is_spread(gang: GangSeen, layout: Layout) -> bool:
    """True for a gang on more nodes than it would need if all were free; of workers that are gone nothing is known."""
    workers, name = gang.worker_ids, gang.accelerator_type
    is_whole = len(workers) > 1 and layout.is_gang(workers, name, len(workers))
    return is_whole and layout.nodes(workers) > layout.fewest_nodes(name, len(workers))


def isolated(job: Job, steps: int, *, jobs_alive: int, layout: Layout, estimate: Estimate) -> Job:
    """The job with the time that `steps` more would have taken on its 1/n share of the cluster (Themis, section 3).

    While the cluster has no worker there is no share, and the steps, done just before, are not counted.
    """
    workers = len(layout.cluster.workers)
    if not workers:
        return job
    rate = equal_share_rate(rates_of(job.spec, layout.types, layout.capacity, estimate), layout.capacity)
    share = isolated_share(jobs_alive, job.spec.scale_factor, workers)
    isolated_steps = job.isolated_steps + steps / share
    time_s = isolated_steps / rate if rate > 0 else job.isolated_time_s
    return replace(job, isolated_steps=isolated_steps, isolated_time_s=time_s)


def received(job: Job, accelerator_type: AcceleratorType, *, rounds: int) -> Job:
    """The job with so many more rounds received on the type."""
    count = job.rounds_received.get(accelerator_type, 0) + rounds
    return replace(job, rounds_received={**job.rounds_received, accelerator_type: count})


def unmeasured(
    jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
) -> tuple[tuple[JobId, AcceleratorType], ...]:
    """(job, type) pairs to profile: the job can run there, nobody has measured or stated it, it has not been there yet.

    A job is sent to measure a type once; if that round measured nothing, what is inferred has to do.
    """
    believed = estimator.matrix([job.spec for job in jobs], problem.accelerator_types)
    fits = problem.throughput_steps_per_s[: len(jobs), 0] > 0
    cells = np.argwhere(fits & believed.is_worth_measuring).tolist()
    pairs = [(jobs[row], problem.accelerator_types[column]) for row, column in cells]
    return tuple((job.id, name) for job, name in pairs if not job.rounds_received.get(name, 0))
