"""The curves of jobs' metrics: a point for a report, fewer for each step the longer a job runs.

Once a job has done 1,000 steps, one point is kept for each 2 steps, from 2,000 steps on one for each 4, and so on; the
first and the newest always stay. Steps that were lost and are done again replace the points of the first time.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, or_, select

from gavel.store.schema import MetricPointRow
from gavel.store.writer import Transaction
from gavel.types import JobId, MetricPoint
from gavel.types.metrics import spacing_of

_TABLE: Any = MetricPointRow.__table__
_OF_JOB = _TABLE.c.job_id == bindparam("job")
_FIRST = select(func.min(_TABLE.c.step)).where(_OF_JOB).scalar_subquery()
_REPLACE = delete(_TABLE).where(
    _OF_JOB,
    _TABLE.c.step >= bindparam("low"),
    or_(_TABLE.c.step > _FIRST, _TABLE.c.step >= bindparam("again")),  # the first stays, unless it is done again
)
_NEWEST = select(func.max(_TABLE.c.step)).where(_OF_JOB).group_by(_TABLE.c.step // bindparam("spacing"))
_THIN = delete(_TABLE).where(_OF_JOB, _TABLE.c.step > _FIRST, _TABLE.c.step.not_in(_NEWEST))


class MetricRows:
    """The rows to write for new points of several jobs, made before the database is locked."""

    def __init__(self, points: Sequence[MetricPoint]) -> None:
        self._replaced: list[dict[str, Any]] = []
        self._thinned: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = []
        for job_id, group in groupby(points, attrgetter("job_id")):
            self._add(job_id, list(group))

    def _add(self, job_id: JobId, points: Sequence[MetricPoint]) -> None:
        first, spacing = points[0], spacing_of(points[-1].step)
        low = min(first.previous_step + 1, first.step // spacing * spacing)
        self._replaced.append({"job": job_id, "low": low, "again": first.step})
        if spacing > spacing_of(first.previous_step):
            self._thinned.append({"job": job_id, "spacing": spacing})
        kept = {point.step // spacing: point for point in points}  # the newest of each
        self._new += [_row(point) for point in kept.values()]

    def write(self, tx: Transaction) -> None:
        """Write the points in place of those that they replace."""
        if self._new:
            tx.connection.execute(_REPLACE, self._replaced)
            tx.connection.execute(insert(_TABLE), self._new)
        if self._thinned:
            tx.connection.execute(_THIN, self._thinned)


def metric_points(connection: Connection, job_id: JobId) -> tuple[MetricPoint, ...]:
    """Return the points that are kept of a job, by their steps."""
    query = select(_TABLE).where(_TABLE.c.job_id == job_id).order_by(_TABLE.c.step)
    return tuple(_points(connection.execute(query)))


def _points(rows: Iterable[Row[Any]]) -> Iterable[MetricPoint]:
    previous_step = 0
    for row in rows:
        yield MetricPoint(
            job_id=row.job_id,
            generation=row.generation,
            accelerator_type=row.accelerator_type,
            previous_step=previous_step,
            step=row.step,
            at_s=row.at_s,
            values=json.loads(row.metrics),
        )
        previous_step = row.step


def _row(point: MetricPoint) -> dict[str, Any]:
    return {
        "job_id": point.job_id,
        "step": point.step,
        "generation": point.generation,
        "accelerator_type": point.accelerator_type,
        "at_s": point.at_s,
        "metrics": json.dumps(dict(point.values)),
    }
