"""Notifications in the database: a queue that is filled from the events of jobs, and the choices of users.

The position behind the last event that was looked at moves in the transaction that queues the notifications of the
events before it. Writers are in order (writer.py), so no event appears later behind that position.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from gavel.ports import AuditEntry
from gavel.ports.notifications import Addresses
from gavel.store import audit, queries
from gavel.store.schema import CountersRow, EventRow, NotificationRow, NotificationSettingsRow
from gavel.store.writer import Transaction
from gavel.types import Job, JobId
from gavel.types.notifications import (
    Channel,
    Notification,
    NotificationSettings,
    NotificationState,
    channels_of,
    receiver_of,
)
from gavel.types.occasions import OCCASION_OF_EVENT, Occasion, is_wanted

T = TypeVar("T")
EVENTS_A_PASS = 500
TEST_MESSAGE = "This is a test of notifications. Nothing has happened."

_TABLE: Any = NotificationRow.__table__
_WAITING = _TABLE.c.state == NotificationState.WAITING.value


class Notifications:
    """The notifications of a store, safe from any thread. `read` and `write` are the store's own."""

    def __init__(
        self,
        read: Callable[[Callable[[Connection], Any]], Any],
        write: Callable[[Callable[[Transaction], Any]], Any],
    ) -> None:
        self._read, self._write = read, write

    def job(self, job_id: JobId) -> Job:
        """Return the job that a notification is about. Raises NotFound."""
        job: Job = self._read(lambda connection: queries.job(connection, job_id))
        return job

    def take_events(self, *, has_webhook: bool, has_email: bool, now_s: float) -> int:
        """Queue notifications of the next events, and move the position behind them; return how many events it read."""
        if self._read(_position) == self._read(_newest_event):
            return 0
        taken: int = self._write(lambda tx: _take_events(tx, has_webhook, has_email, now_s))
        return taken

    def add_test(self, user: str, addresses: Addresses, now_s: float) -> tuple[Notification, ...]:
        """Queue a test message to each address of the user, and return them."""
        about = {"job_id": "", "user_name": user, "occasion": Occasion.TEST.value, "at_s": now_s}
        rows = [_row(channel, address, now_s, message=TEST_MESSAGE, **about) for channel, address in addresses]
        ids: list[int] = self._write(lambda tx: _add(tx, rows))
        query = select(_TABLE).where(_TABLE.c.id.in_(ids)).order_by(_TABLE.c.id)
        return self._list(query)

    def receivers(self, now_s: float) -> frozenset[str]:
        """Return the receivers that a notification is due for."""
        query = select(_TABLE.c.channel, _TABLE.c.address).where(_is_due(now_s)).distinct()
        rows = self._read(lambda connection: connection.execute(query).all())
        return frozenset(receiver_of(Channel(row.channel), row.address) for row in rows)

    def due(self, receiver: str, now_s: float, *, limit: int = 50) -> tuple[Notification, ...]:
        """Return the notifications that are due for a receiver, oldest first; of a job and address only the oldest."""
        if receiver == Channel.EMAIL:
            is_theirs = _TABLE.c.channel == Channel.EMAIL.value
        else:
            is_theirs = (_TABLE.c.channel == Channel.WEBHOOK.value) & (_TABLE.c.address == receiver)
        return self._list(select(_TABLE).where(_is_due(now_s), is_theirs).order_by(_TABLE.c.id).limit(limit))

    def record_attempt(self, notification: Notification) -> None:
        """Store what became of an attempt."""
        values = {
            "state": notification.state.value,
            "attempts": notification.attempts,
            "next_attempt_at_s": notification.next_attempt_at_s,
            "error": notification.error,
        }
        query = update(_TABLE).where(_TABLE.c.id == notification.id).values(values)
        self._write(lambda tx: tx.connection.execute(query) and None)

    def notifications(
        self, *, user: str | None = None, state: NotificationState | None = None, limit: int = 50
    ) -> tuple[Notification, ...]:
        """Return notifications, newest first, of a user (None: of everybody) in a state (None: in any)."""
        query = select(_TABLE).order_by(_TABLE.c.id.desc()).limit(limit)
        if user is not None:
            query = query.where(_TABLE.c.user_name == user)
        if state is not None:
            query = query.where(_TABLE.c.state == state.value)
        return self._list(query)

    def counts(self) -> Mapping[tuple[Channel, NotificationState], int]:
        """Return the number of stored notifications by channel and state."""
        query = select(_TABLE.c.channel, _TABLE.c.state, func.count()).group_by(_TABLE.c.channel, _TABLE.c.state)
        rows = self._read(lambda connection: connection.execute(query).all())
        return {(Channel(channel), NotificationState(state)): count for channel, state, count in rows}

    def settings(self, user: str) -> NotificationSettings:
        """Return what a user chose."""
        chosen: NotificationSettings = self._read(lambda connection: _settings(connection, user))
        return chosen

    def put_settings(self, settings: NotificationSettings, *, by: str, now_s: float) -> NotificationSettings:
        """Store what a user chose."""
        self._write(lambda tx: _put_settings(tx, settings, by, now_s))
        return settings

    def _list(self, query: Any) -> tuple[Notification, ...]:
        rows = self._read(lambda connection: connection.execute(query).all())
        return tuple(map(_notification, rows))


# --- from events to notifications -------------------------------------------------------------------------------


def _position(connection: Connection) -> int:
    return int(connection.execute(select(CountersRow.notified_event)).scalar_one())


def _newest_event(connection: Connection) -> int:
    return int(connection.execute(select(func.max(EventRow.sequence))).scalar() or 0)


def _take_events(tx: Transaction, has_webhook: bool, has_email: bool, now_s: float) -> int:
    # A database whose events have all been forgotten counts them from the beginning again.
    position = min(_position(tx.connection), _newest_event(tx.connection))
    query = select(EventRow.__table__).where(EventRow.sequence > position).order_by(EventRow.sequence)
    events = tx.connection.execute(query.limit(EVENTS_A_PASS)).all()
    _add(tx, [row for event in events for row in _rows(tx.connection, event, has_webhook, has_email, now_s)])
    newest = events[-1].sequence if events else position
    tx.connection.execute(update(CountersRow).values(notified_event=newest))
    return len(events)


def _rows(
    connection: Connection, event: Row[Any], has_webhook: bool, has_email: bool, now_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the notifications of one event, one for each address that its user has."""
    occasion = OCCASION_OF_EVENT.get(event.kind)
    if occasion is None:
        return
    spec = queries.job(connection, event.job_id).spec
    settings = _settings(connection, spec.user)
    if not is_wanted(occasion, settings.occasions if spec.notify is None else spec.notify):
        return
    about = {"job_id": event.job_id, "user_name": spec.user, "occasion": occasion.value, "at_s": event.at_s}
    for channel, address in channels_of(settings, has_webhook=has_webhook, has_email=has_email):
        yield _row(channel, address, now_s, message=event.message, **about)


def _row(channel: Channel, address: str, now_s: float, **about: Any) -> dict[str, Any]:
    new = {"state": NotificationState.WAITING.value, "attempts": 0, "next_attempt_at_s": now_s, "error": ""}
    return {"channel": channel.value, "address": address, "created_at_s": now_s, **new, **about}


def _add(tx: Transaction, rows: list[dict[str, Any]]) -> list[int]:
    if not rows:
        return []
    return list(tx.connection.execute(insert(_TABLE).returning(_TABLE.c.id), rows).scalars())


# --- rows -------------------------------------------------------------------------------------------------------


def _is_due(now_s: float) -> Any:
    """Return the condition of a row that is the oldest that waits of its job and address, and due."""
    oldest = select(func.min(_TABLE.c.id)).where(_WAITING).group_by(_TABLE.c.job_id, _TABLE.c.channel, _TABLE.c.address)
    return _TABLE.c.id.in_(oldest) & (_TABLE.c.next_attempt_at_s <= now_s)


def _notification(row: Row[Any]) -> Notification:
    values = dict(row._mapping)
    return Notification(
        user=values.pop("user_name"),
        occasion=Occasion(values.pop("occasion")),
        channel=Channel(values.pop("channel")),
        state=NotificationState(values.pop("state")),
        **values,
    )


def _settings(connection: Connection, user: str) -> NotificationSettings:
    table = NotificationSettingsRow.__table__
    row = connection.execute(select(table).where(NotificationSettingsRow.user_name == user)).one_or_none()
    if row is None:
        return NotificationSettings(user=user)
    occasions = tuple(Occasion(each) for each in row.occasions)
    return NotificationSettings(user=user, occasions=occasions, email=row.email, webhook_url=row.webhook_url)


def _put_settings(tx: Transaction, settings: NotificationSettings, by: str, now_s: float) -> None:
    user = settings.user
    before = _settings(tx.connection, user)
    row = {
        "user_name": user,
        "occasions": [each.value for each in settings.occasions],
        "email": settings.email,
        "webhook_url": settings.webhook_url,
    }
    tx.connection.execute(delete(NotificationSettingsRow).where(NotificationSettingsRow.user_name == user))
    tx.connection.execute(insert(NotificationSettingsRow), row)
    entry = AuditEntry(
        at_s=now_s,
        by=by,
        subject=f"user/{user}",
        before=asdict(before),
        after=asdict(settings),
        action="notifications.changed",
        user=user,
    )
    audit.add_audit(tx, [entry])
