"""Predictions of when jobs start and finish: the first one of each job, and the actual times."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from gavel.store.schema import PredictionRow
from gavel.store.writer import Transaction
from gavel.types import Expected, Job, JobId, JobState, Prediction

_IDS_A_QUERY = 1000  # databases bound the number of parameters


def add_predictions(tx: Transaction, made: Sequence[Prediction]) -> None:
    """Store the predictions of jobs that have none yet."""
    existing = _stored_ids(tx.connection, [each.job_id for each in made])
    rows = [_row(each) for each in made if each.job_id not in existing]
    if rows:
        tx.connection.execute(insert(PredictionRow), rows)


def settle(tx: Transaction, jobs: Iterable[Job]) -> None:
    """Store when the jobs that have completed actually started and finished."""
    ended = [
        {"job": job.id, "began": job.started_at_s, "ended": job.finished_at_s}
        for job in jobs
        if job.state is JobState.COMPLETED and job.finished_at_s is not None
    ]
    if ended:
        tx.connection.execute(_SETTLE, ended)


def predictions(connection: Connection, limit: int) -> tuple[Prediction, ...]:
    """Return the predictions of the jobs that completed last, newest first."""
    table: Any = PredictionRow.__table__
    is_settled = table.c.finished_at_s.is_not(None)
    query = select(table).where(is_settled).order_by(table.c.finished_at_s.desc(), table.c.job_id).limit(limit)
    return tuple(_prediction(row) for row in connection.execute(query))


_TABLE: Any = PredictionRow.__table__
_SETTLE = (
    update(_TABLE)
    .where(_TABLE.c.job_id == bindparam("job"))
    .values(started_at_s=bindparam("began"), finished_at_s=bindparam("ended"))
)


def _stored_ids(connection: Connection, job_ids: Sequence[JobId]) -> set[JobId]:
    stored: set[JobId] = set()
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        query = select(_TABLE.c.job_id).where(_TABLE.c.job_id.in_(job_ids[start : start + _IDS_A_QUERY]))
        stored.update(connection.execute(query).scalars())
    return stored


def _row(each: Prediction) -> dict[str, Any]:
    start = each.start
    return {
        "job_id": each.job_id,
        "made_at_s": each.made_at_s,
        "start_s": start and start.at_s,
        "start_low_s": start and start.low_s,
        "start_high_s": start and start.high_s,
        "finish_s": each.finish.at_s,
        "finish_low_s": each.finish.low_s,
        "finish_high_s": each.finish.high_s,
    }


def _prediction(row: Row[Any]) -> Prediction:
    start = None
    if row.start_s is not None:
        start = Expected(at_s=row.start_s, low_s=row.start_low_s, high_s=row.start_high_s)
    return Prediction(
        job_id=row.job_id,
        made_at_s=row.made_at_s,
        start=start,
        finish=Expected(at_s=row.finish_s, low_s=row.finish_low_s, high_s=row.finish_high_s),
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
    )
