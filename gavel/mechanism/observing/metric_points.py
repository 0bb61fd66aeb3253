"""Points of the curves of the metrics that jobs report."""

from collections.abc import Iterator

from gavel.mechanism.tick import Tick
from gavel.types import GangSeen, Job, MetricPoint


def metric_points(tick: Tick) -> tuple[MetricPoint, ...]:
    """Return a point for each new report with metrics of the jobs' current gangs, in the order of the reports."""
    return tuple(
        point
        for gang in tick.seen.gangs
        if gang.reports and (job := tick.snapshot.jobs.get(gang.job_id)) and job.generation == gang.generation
        for point in _points(job, gang, tick.seen.observed_at_s)
    )


def _points(job: Job, gang: GangSeen, observed_at_s: float) -> Iterator[MetricPoint]:
    """Yield the points of a gang. Reports that waited to be read are placed by the seconds between them."""
    later_s, previous_step = sum(report.seconds for report in gang.reports), job.steps_reported
    for report in gang.reports:
        later_s -= report.seconds
        if report.sequence > job.report_sequence and report.metrics:
            yield MetricPoint(
                job_id=job.id,
                generation=gang.generation,
                accelerator_type=gang.accelerator_type,
                previous_step=previous_step,
                step=report.step,
                at_s=max(gang.started_at_s or observed_at_s, observed_at_s - later_s),
                values=report.metrics,
            )
            previous_step = report.step
