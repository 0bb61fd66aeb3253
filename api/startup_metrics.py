"""Prometheus metrics of start-ups, and of jobs that make no progress."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from gavel.ports import Snapshot


def startup_metrics(snapshot: Snapshot) -> Iterable[Metric]:
    """Yield the jobs without progress by tier, and how long start-ups take by job kind and accelerator type."""
    text = "Jobs of which no lease is expected to end with a checkpoint, by tier."
    jobs = GaugeMetricFamily("gavel_jobs_without_progress", text, labels=("tier",))
    stalled = Counter(job.spec.tier for job in snapshot.jobs.values() if job.no_progress)
    for tier in snapshot.tiers:
        jobs.add_metric((tier,), float(stalled[tier]))
    yield jobs
    text = "From the start of a gang to its first step: start-up and restore, median of the last ones."
    times = GaugeMetricFamily("gavel_startup_seconds", text, labels=("kind", "accelerator_type"))
    for each in snapshot.startup_times:
        times.add_metric((each.kind, each.accelerator_type), each.until_training_s)
    yield times
