"""What each process of a service opens for itself: the database, and the doorbell socket beside its file."""

import gc
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from gavel.config import Settings
from gavel.daemon.wake import Doorbell
from gavel.mechanism.planning.reservations import Reservations
from gavel.store.database import checked_url
from gavel.store.sql import SqlStore
from gavel.types.job_uids import uids_of

YOUNG, MIDDLE, ALL = 20_000, 10, 100  # thresholds of gc.set_threshold: new objects, then counts of younger collections


def look_for_cycles_rarely() -> None:
    """Make the garbage collector run rarely: with 10,000 jobs in memory a full collection stops all threads for 0.2 s.

    By default each round allocates enough to trigger one, and hardly any object here is in a reference cycle.
    """
    gc.set_threshold(YOUNG, MIDDLE, ALL)


def open_store(settings: Settings, stack: ExitStack, on_change: Callable[[], None] | None) -> SqlStore:
    """Return the database, open until the stack is closed. Raises StoreUnavailable.

    `on_change` is called after each user request that this process writes; on PostgreSQL, that any process writes.
    """
    opened = partial(
        SqlStore,
        settings.url,
        keep_rounds=settings.keep_rounds,
        keep_events_s=settings.keep_events_s,
        jobs_per_user=settings.unfinished_jobs_per_user,
        job_uids=uids_of(settings.job_users),
        reservation_rule=Reservations(settings=settings),
    )
    store = opened() if on_change is None else opened(on_change=on_change)
    stack.callback(store.close)
    return store


def open_doorbell(settings: Settings, stack: ExitStack) -> Doorbell | None:
    """Return the doorbell beside the database file; None for PostgreSQL, which notifies other processes itself."""
    place = checked_url(settings.url)
    if place.get_backend_name() != "sqlite":
        return None
    bell = Doorbell(Path(f"{place.database}-wake"))
    stack.callback(bell.close)
    return bell
