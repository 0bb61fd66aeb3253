"""What the API answers about notifications.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Literal, TypedDict


class NotificationSettings(TypedDict):
    """What a user chose, and the channels that reach the user now."""

    user: str
    occasions: list[str]
    email: str
    webhook_url: str
    channels: list[str]  # webhook, email; each once for each address. Empty: nothing can be sent.


class Notification(TypedDict):
    """A notification: one message to one address."""

    id: int
    job_id: str  # Empty for a test.
    user: str
    occasion: str
    at_s: float  # When it happened.
    message: str
    channel: str
    address: str  # Empty: the operator's webhook.
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    next_attempt_at_s: float  # Of one that waits.
    error: str  # Why the last attempt failed.
