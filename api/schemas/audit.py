"""The audit log."""

from typing import Any

from api.schemas.fields import View


class AuditView(View):
    """One decision: by whom, about what (`tier/gold`, `job/ID`), whom it touches, and from what to what."""

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

    items: list[AuditView]
    next_before: int | None
