"""Notifications: what a user is notified of and where, what was sent, and a test of the settings."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access.auth import OperatorOnly, UserOrOperator
from api.http.errors import documented, invalid, problem
from api.routes.parameters import LimitQuery, NamePath
from api.routes.users import user_of
from api.schemas.notifications import (
    NotificationList,
    NotificationSettingsPut,
    NotificationSettingsView,
    NotificationView,
)
from api.services import Services, ServicesDep
from gavel.notifications.addresses import addresses_of, has_email, refused_email, refused_url
from gavel.types import Identity, Scope
from gavel.types.notifications import Notification, NotificationSettings, NotificationState
from gavel.types.occasions import Occasion

router = APIRouter(prefix="/v1", tags=["notifications"])

NO_CHANNEL = (
    "nothing can be sent to you: an operator sets notification_webhook_url or smtp_host,"
    " and `gavel notification set --email ADDRESS` or --webhook-url says where to"
)


@router.get("/notification-settings", operation_id="get_notification_settings", responses=documented(401, 403, 503))
def get_notification_settings(caller: UserOrOperator, services: ServicesDep) -> NotificationSettingsView:
    """What the caller chose to be notified of, and where."""
    return _settings_view(services.store.notifications.settings(caller.user), services)


@router.put(
    "/notification-settings",
    operation_id="put_notification_settings",
    responses=documented(400, 401, 403, 413, 422, 503),
)
def put_notification_settings(
    body: NotificationSettingsPut, caller: UserOrOperator, services: ServicesDep
) -> NotificationSettingsView:
    """Choose what to be notified of, and where. A user may name the hosts and domains that the operator allows."""
    return _put(caller.user, body, caller, services)


@router.get(
    "/users/{name}/notification-settings",
    operation_id="get_user_notification_settings",
    responses=documented(401, 403, 404, 422, 503),
)
def get_user_notification_settings(
    name: NamePath, caller: OperatorOnly, services: ServicesDep
) -> NotificationSettingsView:
    """What a user chose to be notified of, and where."""
    user_of(services, name)
    return _settings_view(services.store.notifications.settings(name), services)


@router.put(
    "/users/{name}/notification-settings",
    operation_id="put_user_notification_settings",
    responses=documented(400, 401, 403, 404, 413, 422, 503),
)
def put_user_notification_settings(
    name: NamePath, body: NotificationSettingsPut, caller: OperatorOnly, services: ServicesDep
) -> NotificationSettingsView:
    """Choose for a user. An operator may name any e-mail address."""
    user_of(services, name)
    return _put(name, body, caller, services)


@router.get("/notifications", operation_id="list_notifications", responses=documented(401, 403, 422, 503))
def list_notifications(
    caller: UserOrOperator,
    services: ServicesDep,
    state: Annotated[NotificationState | None, Query(description="Only those in this state.")] = None,
    limit: LimitQuery = 50,
) -> NotificationList:
    """What was sent and what waits, newest first: operators see everybody's, users their own."""
    user = None if caller.scope is Scope.OPERATOR else caller.user
    items = services.store.notifications.notifications(user=user, state=state, limit=limit)
    return NotificationList(items=[_view(each) for each in items])


@router.post(
    "/notifications/test", status_code=202, operation_id="test_notifications", responses=documented(401, 403, 422, 503)
)
def test_notifications(caller: UserOrOperator, services: ServicesDep) -> NotificationList:
    """Queue a test message to each of the caller's addresses; `GET /v1/notifications` says what became of it.

    Each is tried once.
    """
    store = services.store.notifications
    addresses = addresses_of(store.settings(caller.user), services.settings)
    if not addresses:
        raise problem(422, NO_CHANNEL)
    return NotificationList(
        items=[_view(each) for each in store.add_test(caller.user, addresses, services.clock.now_s())]
    )


def _put(name: str, body: NotificationSettingsPut, caller: Identity, services: Services) -> NotificationSettingsView:
    store = services.store.notifications
    _check_addresses(body, store.settings(name), caller, services)
    chosen = NotificationSettings(
        user=name,
        occasions=tuple(dict.fromkeys(map(Occasion, body.occasions))),
        email=body.email or "",
        webhook_url=body.webhook_url or "",
    )
    if chosen.occasions and not addresses_of(chosen, services.settings):
        raise invalid("occasions", NO_CHANNEL)
    return _settings_view(store.put_settings(chosen, by=caller.user, now_s=services.clock.now_s()), services)


def _check_addresses(
    body: NotificationSettingsPut, before: NotificationSettings, caller: Identity, services: Services
) -> None:
    """Raise a 422 problem for an address that the caller may not name; one that is there already may stay."""
    settings, is_operator = services.settings, caller.scope is Scope.OPERATOR
    if body.webhook_url and (why := refused_url(body.webhook_url, settings)):
        raise invalid("webhook_url", why)
    if body.email and not has_email(settings):
        raise invalid("email", "the service sends no e-mail; an operator sets smtp_host")
    if body.email and body.email != before.email and not is_operator and (why := refused_email(body.email, settings)):
        raise invalid("email", why)


def _settings_view(chosen: NotificationSettings, services: Services) -> NotificationSettingsView:
    return NotificationSettingsView(
        user=chosen.user,
        occasions=[each.value for each in chosen.occasions],
        email=chosen.email,
        webhook_url=chosen.webhook_url,
        channels=[channel.value for channel, _ in addresses_of(chosen, services.settings)],
    )


def _view(each: Notification) -> NotificationView:
    return NotificationView(
        id=each.id,
        job_id=each.job_id,
        user=each.user,
        occasion=each.occasion.value,
        at_s=each.at_s,
        message=each.message,
        channel=each.channel.value,
        address=each.address,
        state=each.state.value,
        attempts=each.attempts,
        next_attempt_at_s=each.next_attempt_at_s,
        error=each.error,
    )
