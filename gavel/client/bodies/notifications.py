"""What the API is sent about notifications.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class NotificationSettingsPut(TypedDict):
    """What a user wants to be notified of, and where, beside the operator's webhook. Replaces all that was chosen."""

    # For jobs whose submit says nothing: end (of any kind), failure, no-progress.
    occasions: NotRequired[Sequence[Literal["end", "failure", "no-progress"]]]
    email: NotRequired[str | None]  # Null: no e-mail. Users may name domains that the operator allows.
    webhook_url: NotRequired[str | None]  # Null: none. Its host must be one that the operator allows.
