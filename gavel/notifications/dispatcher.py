"""Delivers notifications from the store's queue, in a thread of its own.

Each receiver has a task, so that one that is down or slow delays only its own. What is not delivered stays in
the store and is tried again after pauses that double: it is delivered at least once, after a restart too.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from gavel.config import Settings
from gavel.errors import GavelError
from gavel.notifications.addresses import has_email, has_webhook
from gavel.notifications.sending import Failure, Sender
from gavel.ports.notifications import NotificationStore
from gavel.types.notifications import Notification, NotificationState
from gavel.types.occasions import Occasion

log = structlog.get_logger("gavel.notifications")

LOOK_EVERY_S = 1.0
LOOK_SELDOM_S = 60.0  # where nothing can be sent: the position moves on, so that nothing old is sent later
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 3600.0
JOIN_S = 10.0


class Dispatcher:
    """Sends what waits in the store until `stop`."""

    def __init__(
        self, store: NotificationStore, settings: Settings, url: str, *, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._store, self._settings = store, settings
        self._sender = Sender(settings, url)
        self._first_pause_s = first_pause_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}
        self._stopping = threading.Event()
        has_channel = has_webhook(settings) or has_email(settings)
        self._look_every_s = min(LOOK_EVERY_S, first_pause_s) if has_channel else LOOK_SELDOM_S

    def notes(self) -> tuple[str, ...]:
        """Return which receivers do not take notifications now, one sentence each. Safe from any thread."""
        return tuple(
            f"Notifications by {where} are late: {why}." for where, why in sorted(self._troubles.copy().items())
        )

    def stop(self) -> None:
        """End soon. What is being sent may be sent again by the next one. Safe from any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Deliver until `stop`. Trouble with the store is logged, and the work goes on."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        stopped = asyncio.create_task(asyncio.to_thread(self._stopping.wait))
        while not self._stopping.is_set():
            try:
                await self._look()
            except GavelError as error:
                log.warning("notifications.failed", error=str(error))
            await asyncio.wait({stopped}, timeout=self._look_every_s)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        """Queue what has happened, and give each receiver that something is due for a task."""
        settings, store = self._settings, self._store
        channels = {"has_webhook": has_webhook(settings), "has_email": has_email(settings)}
        while await asyncio.to_thread(store.take_events, **channels, now_s=time.time()):
            pass
        for receiver in await asyncio.to_thread(store.receivers, time.time()):
            if receiver not in self._tasks:
                self._tasks[receiver] = asyncio.create_task(self._serve(receiver))

    async def _serve(self, receiver: str) -> None:
        """Send all that is due for a receiver, one after the other."""
        try:
            while due := await asyncio.to_thread(self._store.due, receiver, time.time()):
                for notification in due:
                    await self._attempt(notification)
        except GavelError as error:
            log.warning("notifications.failed", receiver=receiver or "webhook", error=str(error))
        finally:
            del self._tasks[receiver]

    async def _attempt(self, notification: Notification) -> None:
        failure = await self._send(notification)
        after = self._after(notification, failure, time.time())
        await asyncio.to_thread(self._store.record_attempt, after)
        where = _shown(notification)
        if failure is None or notification.occasion is Occasion.TEST:
            self._troubles.pop(where, None)
        else:
            self._troubles[where] = failure.error
        log.info(
            f"notification.{after.state}",
            id=after.id,
            job=after.job_id,
            channel=after.channel.value,
            attempts=after.attempts,
            error=after.error,
        )

    async def _send(self, notification: Notification) -> Failure | None:
        try:
            about = notification.job_id
            job = await asyncio.to_thread(self._store.job, about) if about else None
            return await self._sender.send(notification, job)
        except Exception as error:  # one notification that cannot be sent must not keep back those behind it
            log.exception("notification.broken", id=notification.id)
            return Failure(f"{type(error).__name__}: {error}")

    def _after(self, notification: Notification, failure: Failure | None, now_s: float) -> Notification:
        """Return the notification after an attempt: delivered, given up, or waiting for the next attempt."""
        tried = replace(notification, attempts=notification.attempts + 1)
        if failure is None:
            return replace(tried, state=NotificationState.DELIVERED, error="")
        tried = replace(tried, error=failure.error)
        is_late = now_s - notification.created_at_s >= self._settings.notification_retry_s
        if failure.is_final or is_late or notification.occasion is Occasion.TEST:
            return replace(tried, state=NotificationState.FAILED)
        pause_s = min(LONGEST_PAUSE_S, self._first_pause_s * 2 ** min(notification.attempts, 20))
        return replace(tried, next_attempt_at_s=now_s + pause_s)


@contextmanager
def dispatched(dispatcher: Dispatcher) -> Iterator[Dispatcher]:
    """Deliver in a thread of its own while the block runs."""
    thread = threading.Thread(target=dispatcher.run, name="gavel-notifications", daemon=True)
    thread.start()
    try:
        yield dispatcher
    finally:
        dispatcher.stop()
        thread.join(timeout=JOIN_S)


def _shown(notification: Notification) -> str:
    """Return the receiver without what may be secret in it: the path of a webhook's URL."""
    if not notification.address or notification.channel.value == "email":
        return notification.channel.value
    return f"webhook to {notification.address.partition('://')[2].partition('/')[0]}"
