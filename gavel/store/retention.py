"""What the database deletes: the oldest events, decisions, predictions, notifications, points of metrics.

Decisions are those of rounds and of the autopilot. It deletes a bounded number of them with each round.

Jobs go later, by `purging.py`; what people decided, and usage, stay for good.
"""

from sqlalchemy import delete, select, tuple_

from gavel.store.autopilot import forget_decisions
from gavel.store.schema import AuditRow, EventRow, MetricPointRow, NotificationRow, PredictionRow
from gavel.store.writer import Transaction
from gavel.types.notifications import NotificationState

ROWS_A_ROUND = 5000  # more than a round writes, little enough not to be felt


def forget(tx: Transaction, before_s: float) -> None:
    """Delete events and decisions of rounds that are older than the instant, the oldest first."""
    oldest = select(EventRow.sequence).order_by(EventRow.sequence).limit(ROWS_A_ROUND)
    tx.connection.execute(delete(EventRow).where(EventRow.sequence.in_(oldest), EventRow.at_s < before_s))
    of_rounds = AuditRow.round_index.is_not(None)
    decisions = select(AuditRow.sequence).where(of_rounds).order_by(AuditRow.sequence).limit(ROWS_A_ROUND)
    tx.connection.execute(delete(AuditRow).where(AuditRow.sequence.in_(decisions), AuditRow.at_s < before_s))
    made = select(PredictionRow.job_id).order_by(PredictionRow.made_at_s).limit(ROWS_A_ROUND)
    is_oldest = PredictionRow.job_id.in_(made)
    tx.connection.execute(delete(PredictionRow).where(is_oldest, PredictionRow.made_at_s < before_s))
    _forget_metric_points(tx, before_s)
    forget_decisions(tx, before_s)
    _forget_notifications(tx, before_s)


def _forget_metric_points(tx: Transaction, before_s: float) -> None:
    table = MetricPointRow.__table__
    oldest = select(table.c.job_id, table.c.step).where(table.c.at_s < before_s).order_by(table.c.at_s)
    is_oldest = tuple_(table.c.job_id, table.c.step).in_(oldest.limit(ROWS_A_ROUND))
    tx.connection.execute(delete(MetricPointRow).where(is_oldest))


def _forget_notifications(tx: Transaction, before_s: float) -> None:
    """Delete the oldest notifications that are not waiting any more."""
    table = NotificationRow.__table__
    oldest = select(table.c.id).where(table.c.state != NotificationState.WAITING.value).order_by(table.c.id)
    is_oldest = table.c.id.in_(oldest.limit(ROWS_A_ROUND))
    tx.connection.execute(delete(NotificationRow).where(is_oldest, table.c.created_at_s < before_s))
