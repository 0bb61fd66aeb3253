"""Where notifications may be sent: what the operator has set up, and what users may name themselves."""

from urllib.parse import urlsplit

from gavel.config import Settings
from gavel.types.notifications import Channel, NotificationSettings, channels_of


def has_webhook(settings: Settings) -> bool:
    """Return whether the operator has named a webhook for everybody."""
    return bool(settings.notification_webhook_url)


def has_email(settings: Settings) -> bool:
    """Return whether e-mail can be sent."""
    return bool(settings.smtp_host)


def addresses_of(chosen: NotificationSettings, settings: Settings) -> list[tuple[Channel, str]]:
    """Return the channels and addresses by which a user is reached now."""
    return channels_of(chosen, has_webhook=has_webhook(settings), has_email=has_email(settings))


def refused_url(url: str, settings: Settings) -> str:
    """Return why a user may not name this URL of a webhook; empty if it may be named."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{url} is no URL: {error}"
    if parts.scheme not in ("http", "https") or not host:
        return f"{url} is no address; write https://HOST/PATH"
    allowed = names_in(settings.notification_hosts)
    if host.lower() not in allowed:
        listed = ", ".join(allowed) or "none"
        return f"host {host} is not one of those that the operator allows (notification_hosts): {listed}"
    return ""


def refused_email(address: str, settings: Settings) -> str:
    """Return why a user may not name this e-mail address; empty if it may be named."""
    domain, allowed = address.rpartition("@")[2].lower(), names_in(settings.notification_email_domains)
    if domain in allowed:
        return ""
    listed = ", ".join(allowed) or "none"
    return (
        f"domain {domain} is not one of those that users may name (notification_email_domains): {listed};"
        " an operator can set any address"
    )


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of a list, in small letters."""
    return tuple(text.lower().split())
