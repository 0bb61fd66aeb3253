"""Derives measurements and isolated time from jobs and the reports of their gangs."""

from collections.abc import Sequence

import numpy as np

from gavel.finish_time import isolated_rate
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.jobs.phases import mean_steps
from gavel.mechanism.planning.problem import Estimate, rates_of
from gavel.mechanism.tick import Tick
from gavel.types import (
    AcceleratorType,
    Configurations,
    GangSeen,
    Job,
    JobSpec,
    JobState,
    Measurement,
    Report,
    ReportKind,
    plain_type,
)
from gavel.types.copying import changed


def measurements_of(job: Job, gang: GangSeen, layout: Layout, partner: str | None = None) -> tuple[Measurement, ...]:
    """Return the measurements in a gang's new reports, colocated with kind `partner` if any; `job` as before them."""
    return tuple(
        _measurement(job, gang, layout, partner, report)
        for report in gang.reports
        if report.steps > 0 and report.sequence > job.report_sequence
    )


def silence_of(
    job: Job, gang: GangSeen, layout: Layout, partner: str | None, *, now_s: float, round_s: float
) -> tuple[Measurement, ...]:
    """Return a measurement of 0 steps if a colocated gang has done none a round after its start, else nothing.

    The two jobs may not fit on the same workers at all.
    """
    began_s = gang.started_at_s
    if job.spec.is_interactive:  # which has no steps
        return ()
    if partner is None or began_s is None or job.trained_steps or gang.reports or now_s - began_s < round_s:
        return ()
    silence = Report(sequence=job.report_sequence, kind=ReportKind.PROGRESS, step=0, seconds=now_s - began_s)
    return (_measurement(job, gang, layout, partner, silence),)


def _measurement(job: Job, gang: GangSeen, layout: Layout, partner: str | None, report: Report) -> Measurement:
    return Measurement(
        job_id=job.id,
        generation=gang.generation,
        sequence=report.sequence,
        user=job.spec.user,
        kind=job.spec.kind,
        scale_factor=job.spec.scale_factor,
        accelerator_type=plain_type(gang.accelerator_type),
        steps=mean_steps(job, report),
        seconds=report.seconds,
        partner=partner,
        placement="spread" if _is_spread(gang, layout) else "consolidated",
        is_representative=report.is_representative,
        stated_steps_per_s=job.spec.throughput_steps_per_s.get(plain_type(gang.accelerator_type)),
        accelerator_memory_bytes=report.accelerator_memory_bytes,
    )


def _is_spread(gang: GangSeen, layout: Layout) -> bool:
    """True for a gang on more nodes than it would need if all were free; False if some of its workers are gone."""
    workers, name = gang.worker_ids, gang.accelerator_type
    is_whole = len(workers) > 1 and layout.is_gang(workers, name, len(workers))
    return is_whole and layout.nodes(workers) > layout.fewest_nodes(name, len(workers))


def isolated_rates(
    specs: Sequence[JobSpec],
    competing: Sequence[int],
    layout: Layout,
    estimate: Estimate,
    configurations: Configurations | None = None,
) -> list[tuple[float, float]]:
    """Return T_iso of each job (gavel/finish_time.py) on its part of the cluster and on all of it, in steps per second.

    `competing`: how many jobs may be served, the job itself included; each has that part of the cluster. A job that can
    run nowhere has 0 for both. `configurations`: those of the elastic ones of the jobs.
    """
    rates = rates_of(specs, layout.feasibility, estimate)
    sizes = np.array([spec.scale_factor for spec in specs])
    own, whole = (
        isolated_rate(rates, layout.capacity, sizes, share, configurations).tolist()
        for share in (1 / np.array(competing), np.ones(len(specs)))
    )
    return list(zip(own, whole, strict=True))


def isolated(job: Job, steps: int, *, own_steps_per_s: float, whole_steps_per_s: float) -> Job:
    """Return the job with the time added that `steps` more would have taken at its T_iso, as of `isolated_rates`.

    Where the job can run nowhere any more, there is no slice, and the steps, done just before, are not counted.
    """
    if own_steps_per_s <= 0:
        return job
    isolated_steps = job.isolated_steps + steps * whole_steps_per_s / own_steps_per_s  # in steps with all to itself
    return changed(job, isolated_steps=isolated_steps, isolated_time_s=isolated_steps / whole_steps_per_s)


def without_lost(job: Job, steps: int) -> Job:
    """Return the job without the isolated time of `steps` that were reported and lost, each counted as the mean of all.

    `job` is as it is after the loss.
    """
    kept = job.steps_reported / (job.steps_reported + steps)
    return changed(job, isolated_steps=job.isolated_steps * kept, isolated_time_s=job.isolated_time_s * kept)


def received(job: Job, accelerator_type: AcceleratorType, *, rounds: int) -> Job:
    """Return the job with `rounds` more rounds received on the type."""
    count = job.rounds_received.get(accelerator_type, 0) + rounds
    return changed(job, rounds_received={**job.rounds_received, accelerator_type: count})


def count_kept(tick: Tick) -> None:
    """Count the round that was just decided for gangs that stay; a new gang's is counted when it is launched."""
    for lease in tick.record.plan.leases if tick.record else ():
        job = tick.jobs.get(lease.job_id)
        if job is not None and job.state is JobState.LEASED and job.generation == lease.generation:
            tick.put(received(job, lease.accelerator_type, rounds=1))
