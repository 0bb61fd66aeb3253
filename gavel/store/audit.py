"""The audit log and the usage of tiers, in SQL: every commit that decides something about a user appends to them."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from gavel.ports import AuditEntry
from gavel.store import codec
from gavel.store.schema import AuditRow, UsageRow
from gavel.store.writer import Transaction
from gavel.types import Usage
from gavel.types.people import AMOUNTS

MONTHS_IN_A_SNAPSHOT = 2  # around midnight of the first, two are written to


def add_audit(tx: Transaction, entries: Iterable[AuditEntry]) -> None:
    """Append entries to the audit log."""
    rows = [
        {
            "at_s": each.at_s,
            "by_name": each.by,
            "subject": each.subject,
            "before": None if each.before is None else codec.dump(each.before),
            "after": codec.dump(each.after),
            "action": each.action,
            "user_name": each.user,
            "round_index": each.round_index,
        }
        for each in entries
    ]
    if rows:
        tx.connection.execute(insert(AuditRow), rows)


def audit(
    connection: Connection, subject: str | None, user: str | None, before: int | None, limit: int
) -> tuple[AuditEntry, ...]:
    """Return the entries with sequence < `before` that match, newest first."""
    query = select(AuditRow.__table__).order_by(AuditRow.sequence.desc()).limit(limit)
    if subject is not None:
        query = query.where(AuditRow.subject == subject)
    if user is not None:
        query = query.where(AuditRow.user_name == user)
    if before is not None:
        query = query.where(AuditRow.sequence < before)
    return tuple(_entry(row) for row in connection.execute(query))


def _entry(row: Row[Any]) -> AuditEntry:
    with codec.readable(f"entry {row.sequence} of the audit log"):
        return AuditEntry(
            at_s=row.at_s,
            by=row.by_name,
            subject=row.subject,
            before=None if row.before is None else json.loads(row.before),
            after=json.loads(row.after),
            action=row.action,
            user=row.user_name,
            round_index=row.round_index,
            sequence=row.sequence,
        )


# --- usage ------------------------------------------------------------------------------------------------------


def add_usage(tx: Transaction, parts: Iterable[Usage]) -> None:
    """Add to the stored usage of tiers."""
    for part in parts:
        is_it = (UsageRow.month == part.month, UsageRow.tier == part.tier)
        more = {name: getattr(UsageRow, name) + getattr(part, name) for name in AMOUNTS}
        if tx.connection.execute(update(UsageRow).where(*is_it).values(more)).rowcount == 0:
            tx.connection.execute(insert(UsageRow), asdict(part))


def usage(connection: Connection, month: str) -> tuple[Usage, ...]:
    """Return what the tiers used in a month, sorted by tier."""
    rows = connection.execute(select(UsageRow.__table__).where(UsageRow.month == month))
    return tuple(sorted((Usage(**row._mapping) for row in rows), key=lambda each: each.tier))


def newest_usage(connection: Connection) -> dict[tuple[str, str], Usage]:
    """Return the usage of the newest months, by (tier, month)."""
    newest = select(UsageRow.month).distinct().order_by(UsageRow.month.desc()).limit(MONTHS_IN_A_SNAPSHOT)
    months = connection.execute(newest).scalars().all()
    rows = connection.execute(select(UsageRow.__table__).where(UsageRow.month.in_(months)))
    return {(row.tier, row.month): Usage(**row._mapping) for row in rows}
