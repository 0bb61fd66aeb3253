"""The clients' calls about notifications."""

from typing import Unpack

from gavel.client.answers import Notification, NotificationSettings
from gavel.client.bodies import NotificationSettingsPut
from gavel.client.script import Method, Script, call, get, listed, part


class NotificationCalls:
    """Calls about notifications, part of both clients."""

    @Method
    def notification_settings(self, user: str | None = None) -> Script[NotificationSettings]:
        """Return what a user chose to be notified of, and where; None: the caller."""
        return get(_settings(user))

    @Method
    def put_notification_settings(
        self, user: str | None = None, **chosen: Unpack[NotificationSettingsPut]
    ) -> Script[NotificationSettings]:
        """Replace what a user chose; None: the caller."""
        return call("PUT", _settings(user), may_repeat=True, json=dict(chosen))

    @Method
    def notifications(self, *, state: str | None = None, limit: int = 50) -> Script[list[Notification]]:
        """Return notifications, newest first: the caller's, or everybody's for an operator."""
        return listed("/v1/notifications", state=state, limit=limit)

    @Method
    def test_notifications(self) -> Script[list[Notification]]:
        """Queue a test message to each of the caller's addresses, and return them."""
        queued = yield from call("POST", "/v1/notifications/test")
        return list(queued["items"])


def _settings(user: str | None) -> str:
    return "/v1/notification-settings" if user is None else f"/v1/users/{part(user)}/notification-settings"
