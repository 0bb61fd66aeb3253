"""Notifications: what users want to be notified of, where to, and what was sent."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api.schemas.fields import Request, View, example

OccasionName = Literal["end", "failure", "no-progress"]
Email = Annotated[
    str, StringConstraints(pattern=r"^[^@\s<>,;:\"\\]+@[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$", max_length=254)
]
WebhookUrl = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=500)]
Occasions = Annotated[list[OccasionName], Field(max_length=3)]


class NotificationSettingsPut(Request):
    """What a user wants to be notified of, and where, beside the operator's webhook. Replaces all that was chosen."""

    model_config = example(occasions=["end", "failure"], email="ann@example.org")

    occasions: Occasions = Field(
        default_factory=list,
        description="For jobs whose submit says nothing: end (of any kind), failure, no-progress.",
    )
    email: Email | None = Field(None, description="Null: no e-mail. Users may name domains that the operator allows.")
    webhook_url: WebhookUrl | None = Field(
        None, description="Null: none. Its host must be one that the operator allows."
    )


class NotificationSettingsView(View):
    """What a user chose, and the channels that reach the user now."""

    user: str
    occasions: list[str]
    email: str
    webhook_url: str
    channels: list[str] = Field(description="webhook, email; each once for each address. Empty: nothing can be sent.")


class NotificationView(View):
    """A notification: one message to one address."""

    id: int
    job_id: str = Field(description="Empty for a test.")
    user: str
    occasion: str
    at_s: float = Field(description="When it happened.")
    message: str
    channel: str
    address: str = Field(description="Empty: the operator's webhook.")
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    next_attempt_at_s: float = Field(description="Of one that waits.")
    error: str = Field(description="Why the last attempt failed.")


class NotificationList(View):
    """Newest first."""

    items: list[NotificationView]
