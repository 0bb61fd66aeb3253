"""Commands to the scheduler, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

OperationId = str


class OperationState(StrEnum):
    """The state of an operation."""

    PENDING = "pending"  # durable; the scheduler has yet to apply it, or to see its effect
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One command row: `kind` names its handler (mechanism/commands/table.py), `subject` what it is about (`node/n0`).

    `sequence` grows over all operations, in the order in which they were acknowledged and are applied. `error_kind` is
    the name of a class of gavel/errors.py, empty unless the operation failed; `error_field` the field it blames.
    """

    id: OperationId
    sequence: int
    kind: str
    subject: str
    body: Mapping[str, Any]
    by: str
    created_at_s: float
    state: OperationState = OperationState.PENDING
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    error_kind: str = ""
    error_field: str = ""
    finished_at_s: float | None = None
