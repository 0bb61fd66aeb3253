"""Prometheus metrics of the disk of this process's machine."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from gavel.backends.disk import free_bytes, reserve_bytes
from gavel.config import Settings


def disk_metrics(settings: Settings) -> Iterable[Metric]:
    """Yield how much of the disk with the state folder is free, and how much stays free: below it no gang is started.

    Nothing where the disk cannot be looked at: the other metrics are needed all the more then.
    """
    try:
        free, reserve = float(free_bytes(settings.state_dir)), float(reserve_bytes(settings))
    except OSError:
        return
    yield GaugeMetricFamily("gavel_disk_free_bytes", "Free disk of the state folder.", value=free)
    text = "Free disk below which no gang is started."
    yield GaugeMetricFamily("gavel_disk_reserve_bytes", text, value=reserve)
