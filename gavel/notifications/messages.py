"""What a notification says: as JSON for a webhook with its signature, and as an e-mail."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from gavel.errors import InvalidRequest
from gavel.types import Job
from gavel.types.notifications import Notification
from gavel.types.occasions import Occasion

SECRET_PREFIX = "whsec_"  # noqa: S105  of the standard, before the key in Base64
WHAT = {
    Occasion.END: "has ended",
    Occasion.FAILURE: "has failed",
    Occasion.NO_PROGRESS: "makes no progress",
    Occasion.TEST: "is tested",
}


def webhook_body(notification: Notification, job: Job | None, url: str) -> bytes:
    """Return the JSON that a webhook gets; `job` None: a test. `url` is the service's address for people."""
    content: dict[str, Any] = {
        "type": f"job.{notification.occasion}" if job else "test",
        "timestamp_s": notification.at_s,
        "user": notification.user,
        "message": notification.message,
        "job": None if job is None else _job(job, url),
    }
    return json.dumps(content).encode()


def _job(job: Job, url: str) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "kind": job.spec.kind,
        "user": job.spec.user,
        "tier": job.spec.tier,
        "state": job.state.value,
        "reason": job.reason.value,
        "steps_done": job.steps_done,
        "total_steps": job.total_steps,
        "exit_code": job.exit_code,
        "submitted_at_s": job.submitted_at_s,
        "finished_at_s": job.finished_at_s,
        "url": page_of(job, url),
    }


def page_of(job: Job, url: str) -> str:
    """Return the address of a job's page."""
    return f"{url.rstrip('/')}/jobs/{job.id}"


def key_of(secret: str) -> bytes:
    """Return the key in a secret: `whsec_` and Base64, else the text itself. Raises InvalidRequest for bad Base64."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise InvalidRequest("notification_webhook_secret", f"after whsec_ is no Base64: {error}") from None


def webhook_headers(notification: Notification, body: bytes, secret: str, now_s: float) -> Mapping[str, str]:
    """Return the headers of the Standard Webhooks specification: an id, the time, and a signature of both and the body.

    The id is the same in each attempt, so that a receiver can leave out what it has had before. Without a secret there
    is no signature. Source: https://www.standardwebhooks.com
    """
    message_id, timestamp = f"gavel-{notification.id}", str(int(now_s))
    headers = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": timestamp}
    if secret:
        signed = f"{message_id}.{timestamp}.".encode() + body
        digest = hmac.digest(key_of(secret), signed, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def email_of(notification: Notification, job: Job | None, *, sender: str, url: str) -> EmailMessage:
    """Return a notification as an e-mail in plain text."""
    message = EmailMessage()
    message["From"] = sender
    message["To"] = notification.address
    message["Date"] = formatdate(notification.at_s)
    message["Message-ID"] = f"<gavel-{notification.id}-{int(notification.created_at_s)}@{sender.rpartition('@')[2]}>"
    name = "a notification" if job is None else f"job {job.spec.name or job.id}"
    message["Subject"] = f"Gavel: {name} {WHAT[notification.occasion]}"
    lines = [notification.message, ""]
    if job is not None:
        lines += [f"Job: {job.id} {job.spec.name}".rstrip(), f"State: {job.state.value}, {job.position}"]
        lines += [] if job.exit_code is None else [f"Exit code: {job.exit_code}"]
        lines += [f"Page: {page_of(job, url)}", ""]
    message.set_content("\n".join(lines))
    return message
