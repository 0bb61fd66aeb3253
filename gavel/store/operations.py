"""Commands in SQL: added by the API's side, read and ended by the scheduler's commit."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from gavel.store import codec
from gavel.store.rules import KEEP_OPERATIONS, PENDING_COMMANDS_MAX, check_pending, check_unfinished, no_operation
from gavel.store.schema import OperationRow
from gavel.store.writer import Transaction
from gavel.types import Operation, OperationId, OperationState

_OPERATIONS = OperationRow.__table__
_IS_PENDING = OperationRow.state == OperationState.PENDING.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommand:
    """A command that is not stored yet."""

    kind: str
    subject: str
    body: Mapping[str, Any]
    by: str
    now_s: float


def add_command(tx: Transaction, operation_id: OperationId, command: NewCommand) -> Operation:
    """Store a command and return its operation, pending. Raises StoreUnavailable when too many wait."""
    check_pending(tx.connection.execute(select(func.count()).where(_IS_PENDING)).scalar_one())
    row = {
        "id": operation_id,
        "kind": command.kind,
        "subject": command.subject,
        "body": codec.dump(command.body),
        "by_name": command.by,
        "created_at_s": command.now_s,
        "state": OperationState.PENDING.value,
        "result": "{}",
        "error": "",
        "error_kind": "",
        "error_field": "",
    }
    tx.connection.execute(insert(OperationRow), row)
    return operation(tx.connection, operation_id)


def operation(connection: Connection, operation_id: OperationId) -> Operation:
    """Return one operation; raises NotFound."""
    row = connection.execute(select(_OPERATIONS).where(OperationRow.id == operation_id)).one_or_none()
    if row is None:
        raise no_operation(operation_id)
    return _operation(row)


def pending(connection: Connection) -> tuple[Operation, ...]:
    """Return the pending operations, oldest first."""
    query = select(_OPERATIONS).where(_IS_PENDING).order_by(OperationRow.sequence).limit(PENDING_COMMANDS_MAX)
    return tuple(_operation(row) for row in connection.execute(query))


def update_operations(tx: Transaction, operations: Iterable[Operation]) -> None:
    """Store the results of operations and delete the oldest that ended. Raises NotFound, InvariantViolated."""
    newest = 0
    for each in operations:
        state = tx.connection.execute(select(OperationRow.state).where(OperationRow.id == each.id)).scalar()
        check_unfinished(each.id, None if state is None else OperationState(state))
        outcome = {
            "state": each.state.value,
            "result": codec.dump(each.result),
            "error": codec.plain_text(each.error),
            "error_kind": each.error_kind,
            "error_field": codec.plain_text(each.error_field),
            "finished_at_s": each.finished_at_s,
        }
        tx.connection.execute(update(OperationRow).where(OperationRow.id == each.id).values(outcome))
        newest = max(newest, each.sequence)
    if newest:
        is_old = OperationRow.sequence <= newest - KEEP_OPERATIONS
        tx.connection.execute(delete(OperationRow).where(is_old, ~_IS_PENDING))


def _operation(row: Row[Any]) -> Operation:
    with codec.readable(f"operation {row.id}"):
        return Operation(
            id=row.id,
            sequence=row.sequence,
            kind=row.kind,
            subject=row.subject,
            body=json.loads(row.body),
            by=row.by_name,
            created_at_s=row.created_at_s,
            state=OperationState(row.state),
            result=json.loads(row.result),
            error=row.error,
            error_kind=row.error_kind,
            error_field=row.error_field,
            finished_at_s=row.finished_at_s,
        )
