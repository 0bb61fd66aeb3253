"""What each process of a service opens for itself: the database, and the bell beside it."""

import gc
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from gavel.config import Settings
from gavel.daemon.wake import Doorbell
from gavel.store.database import checked_url
from gavel.store.sql import SqlStore

YOUNG, MIDDLE, ALL = 20_000, 10, 100  # new objects that are looked through, and how often older ones with them


def look_for_cycles_rarely() -> None:
    """With 10,000 jobs in memory a look through all objects holds up everybody for a fifth of a second.

    A round allocates enough for one each time by default; hardly anything here is a cycle that only this would free.
    """
    gc.set_threshold(YOUNG, MIDDLE, ALL)


def open_store(settings: Settings, stack: ExitStack, on_change: Callable[[], None] | None) -> SqlStore:
    """The database, until the stack is closed. Raises StoreUnavailable.

    `on_change` is called after each wish that this process writes; on PostgreSQL, for each of any process.
    """
    opened = partial(
        SqlStore,
        settings.url,
        keep_rounds=settings.keep_rounds,
        keep_events_s=settings.keep_events_s,
        jobs_per_user=settings.queued_jobs_per_user,
    )
    store = opened() if on_change is None else opened(on_change=on_change)
    stack.callback(store.close)
    return store


def open_doorbell(settings: Settings, stack: ExitStack) -> Doorbell | None:
    """Beside the database, if that is a file; PostgreSQL tells other processes itself."""
    place = checked_url(settings.url)
    if place.get_backend_name() != "sqlite":
        return None
    bell = Doorbell(Path(f"{place.database}-wake"))
    stack.callback(bell.close)
    return bell
