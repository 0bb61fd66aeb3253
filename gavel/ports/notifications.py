"""The store of notifications: what waits to be sent, and what users chose."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gavel.types import Job, JobId
from gavel.types.notifications import Channel, Notification, NotificationSettings, NotificationState

Addresses = Sequence[tuple[Channel, str]]


class NotificationStore(Protocol):
    """Notifications and the choices of users. What a call wrote is committed when it returns."""

    def job(self, job_id: JobId) -> Job:
        """Return the job that a notification is about. Raises NotFound."""

    def take_events(self, *, has_webhook: bool, has_email: bool, now_s: float) -> int:
        """Queue notifications of the next events, and move the position behind them; return how many events it read.

        Both are one transaction: no event is left out, and none is queued twice, whenever the process ends.
        """

    def add_test(self, user: str, addresses: Addresses, now_s: float) -> tuple[Notification, ...]:
        """Queue a test message to each address of the user, and return them."""

    def receivers(self, now_s: float) -> frozenset[str]:
        """Return the receivers (`Notification.receiver`) that a notification is due for."""

    def due(self, receiver: str, now_s: float, *, limit: int = 50) -> tuple[Notification, ...]:
        """Return the notifications that are due for a receiver, oldest first.

        Of one job and address that is at most the oldest that waits: the next follows once that is sent or given up.
        """

    def record_attempt(self, notification: Notification) -> None:
        """Store state, attempts, the next attempt and the error of a notification after an attempt."""

    def notifications(
        self, *, user: str | None = None, state: NotificationState | None = None, limit: int = 50
    ) -> tuple[Notification, ...]:
        """Return notifications, newest first, of a user (None: of everybody) in a state (None: in any)."""

    def counts(self) -> Mapping[tuple[Channel, NotificationState], int]:
        """Return the number of stored notifications by channel and state."""

    def settings(self, user: str) -> NotificationSettings:
        """Return what a user chose."""

    def put_settings(self, settings: NotificationSettings, *, by: str, now_s: float) -> NotificationSettings:
        """Store what a user chose."""
