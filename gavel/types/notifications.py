"""Notifications: what is sent to users about their jobs, when, and where to."""

from dataclasses import dataclass
from enum import StrEnum

from gavel.types.jobs import JobId
from gavel.types.occasions import Occasion


class Channel(StrEnum):
    """How a notification is sent."""

    WEBHOOK = "webhook"
    EMAIL = "email"


class NotificationState(StrEnum):
    """What became of a notification."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """What a user chose for the jobs that say nothing themselves, and where notifications of the user are sent."""

    user: str
    occasions: tuple[Occasion, ...] = ()
    email: str = ""
    webhook_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One message about a job to one address; `address` is empty for the operator's webhook.

    `created_at_s` is when it was put in the queue, `at_s` when what it is about happened. `error` is why the last
    attempt failed. `job_id` is empty for a test.
    """

    id: int
    job_id: JobId
    user: str
    occasion: Occasion
    at_s: float
    message: str
    channel: Channel
    address: str
    created_at_s: float
    state: NotificationState = NotificationState.WAITING
    attempts: int = 0
    next_attempt_at_s: float = 0.0
    error: str = ""

    @property
    def receiver(self) -> str:
        """Return who takes it: one mail server takes all e-mail."""
        return receiver_of(self.channel, self.address)


def receiver_of(channel: Channel, address: str) -> str:
    """Return the receiver of a channel and an address: a URL, empty for the operator's webhook, or `email`."""
    return address if channel is Channel.WEBHOOK else channel.value


def channels_of(settings: NotificationSettings, *, has_webhook: bool, has_email: bool) -> list[tuple[Channel, str]]:
    """Return the channels and addresses that a user is reached by, where the operator has set them up."""
    channels = [(Channel.WEBHOOK, "")] if has_webhook else []
    if settings.webhook_url:
        channels.append((Channel.WEBHOOK, settings.webhook_url))
    if settings.email and has_email:
        channels.append((Channel.EMAIL, settings.email))
    return channels
