"""The audit log."""

from typing import Any

from api.schemas.fields import View


class AuditEntryView(View):
    """One decision: who made it, about what (`tier/gold`, `job/ID`), whom it affects, values before and after."""

    sequence: int
    at_s: float
    by: str
    action: str
    subject: str
    user: str
    round_index: int | None
    before: dict[str, Any] | None
    after: dict[str, Any]


class AuditList(View):
    """Newest first; ask again with `before=next_before`; null: these were the last."""

    items: list[AuditEntryView]
    next_before: int | None
