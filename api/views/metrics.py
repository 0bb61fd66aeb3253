"""The curves of a job's metrics, as its owner sees them."""

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

from api.schemas.results import JobMetricsView
from gavel.types import MetricPoint

T = TypeVar("T")
NAMES_MAX = 32  # a job may report 16 at a time, and others later


def metrics_view(points: Sequence[MetricPoint], most: int) -> JobMetricsView:
    """Return at most `most` of the points, evenly chosen, with the first and the last; of the 32 newest names."""
    newest = dict.fromkeys(name for point in reversed(points) for name in point.values)
    names = sorted(islice(newest, NAMES_MAX))
    chosen = evenly(points, most)
    return JobMetricsView(
        names=names,
        steps=[point.step for point in chosen],
        at_s=[point.at_s for point in chosen],
        generations=[point.generation for point in chosen],
        accelerator_types=[point.accelerator_type for point in chosen],
        values={name: [point.values.get(name) for point in chosen] for name in names},
    )


def evenly(points: Sequence[T], most: int) -> Sequence[T]:
    """Return all points, or `most` (at least 2) of them at equal distances, the first and the last included."""
    if len(points) <= most:
        return points
    return [points[index * (len(points) - 1) // (most - 1)] for index in range(most)]
