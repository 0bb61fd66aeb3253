"""One attempt to deliver a notification. It ends within a limit, whatever the receiver does."""

import asyncio
import ssl
import time
from dataclasses import dataclass

import aiosmtplib
import httpx

from gavel.config import Settings
from gavel.notifications.addresses import refused_url
from gavel.notifications.messages import email_of, key_of, webhook_body, webhook_headers
from gavel.types import Job
from gavel.types.notifications import Channel, Notification

ATTEMPT_LIMIT_S = 10.0
GONE = 410
ERROR_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, and whether another one cannot succeed either."""

    error: str
    is_final: bool = False


class Sender:
    """Sends by the operator's settings. `url` is the service's address for people.

    Raises InvalidRequest for a secret that is none.
    """

    def __init__(self, settings: Settings, url: str) -> None:
        key_of(settings.notification_webhook_secret.get_secret_value())
        self._settings, self._url = settings, url
        self._certificates = ssl.create_default_context()  # those of the system, read once

    async def send(self, notification: Notification, job: Job | None) -> Failure | None:
        """Deliver the notification; return why it failed, or None."""
        send = self._send_webhook if notification.channel is Channel.WEBHOOK else self._send_email
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                return await send(notification, job)
        except TimeoutError:
            return Failure(f"no answer within {ATTEMPT_LIMIT_S:g} s")
        except aiosmtplib.SMTPResponseException as error:
            return Failure(_short(f"the mail server refused: {error.code} {error.message}"), is_final=error.code >= 550)
        except aiosmtplib.SMTPRecipientsRefused as error:
            worst = max((each.code for each in error.recipients), default=0)
            reasons = "; ".join(f"{each.code} {each.message}" for each in error.recipients)
            return Failure(_short(f"the mail server refused the address: {reasons}"), is_final=worst >= 550)
        except (httpx.HTTPError, httpx.InvalidURL, aiosmtplib.SMTPException, OSError, ValueError) as error:
            return Failure(_short(f"{type(error).__name__}: {error}".rstrip(": ")))

    async def _send_webhook(self, notification: Notification, job: Job | None) -> Failure | None:
        settings = self._settings
        url = notification.address or settings.notification_webhook_url
        if not url:
            return Failure("the service has no notification_webhook_url any more", is_final=True)
        if notification.address and (why := refused_url(url, settings)):  # the operator may have changed the list
            return Failure(why, is_final=True)
        body = webhook_body(notification, job, self._url)
        secret = settings.notification_webhook_secret.get_secret_value()
        headers = webhook_headers(notification, body, secret, time.time())
        # No connection is kept, and the body of an answer is not read: a receiver can send any amount of it.
        async with (
            httpx.AsyncClient(verify=self._certificates, timeout=ATTEMPT_LIMIT_S, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            if answer.is_success:
                return None
            return Failure(f"the receiver answered with status {answer.status_code}", answer.status_code == GONE)

    async def _send_email(self, notification: Notification, job: Job | None) -> Failure | None:
        settings = self._settings
        if not settings.smtp_host:
            return Failure("the service has no smtp_host any more", is_final=True)
        message = email_of(notification, job, sender=sender_of(settings), url=self._url)
        await aiosmtplib.send(
            message,
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_user or None,
            password=settings.smtp_password.get_secret_value() or None,
            use_tls=settings.smtp_security == "tls",
            start_tls=settings.smtp_security == "starttls",
            cert_bundle=str(settings.smtp_ca_file) if settings.smtp_ca_file else None,
            timeout=ATTEMPT_LIMIT_S,
        )
        return None


def sender_of(settings: Settings) -> str:
    """Return the address that e-mail comes from."""
    return settings.smtp_from or f"gavel@{settings.smtp_host}"


def _short(text: str) -> str:
    return " ".join(text.split())[:ERROR_CHARACTERS]
