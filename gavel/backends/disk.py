"""How full the disk of the service is, against the reserve that stays free and the budgets of its jobs."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from gavel.backends.leftovers import Leftovers
from gavel.config import Settings
from gavel.types import DiskState, JobId

log = structlog.get_logger("gavel.disk")

RESERVE_FRACTION_MAX = 0.05  # of the disk, so that a small one can be used at all
MEASURE_EVERY_S = 60.0


def free_bytes(path: Path) -> int:
    """Return the bytes that this process may still write to the disk. Raises OSError."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def reserve_bytes(settings: Settings) -> int:
    """Return the bytes of the disk that stay free. Raises OSError."""
    disk = os.statvfs(settings.state_dir)
    return min(settings.disk_reserve_bytes, int(RESERVE_FRACTION_MAX * disk.f_blocks * disk.f_frsize))


def low_disk(settings: Settings) -> str:
    """Return a sentence that says how little disk is free, if it is less than the reserve; else an empty text."""
    try:
        free, reserve = free_bytes(settings.state_dir), reserve_bytes(settings)
    except OSError as error:
        return f"The disk of {settings.state_dir} cannot be looked at: {error.strerror}."
    if free >= reserve:
        return ""
    return (
        f"{_shown(free)} of the disk of {settings.state_dir.resolve()} are free, and {_shown(reserve)} stay in reserve"
        " (disk_reserve_bytes): no gang is started, and those that run save a checkpoint."
    )


class Disk:
    """The state of the disk, as a leader asks for it in each tick. What jobs fill is measured by `measure`, elsewhere.

    `user_of` returns the user of a job, None for one that is not stored.
    """

    def __init__(self, settings: Settings, user_of: Callable[[JobId], str | None]) -> None:
        self._settings = settings
        self._user_of = user_of
        self._total_bytes = 0
        self._over_budget: Mapping[str, str] = {}
        self._low_since_s = 0.0  # 0: there is room

    def state(self) -> DiskState:
        """Return the state now: the free disk as it is, the budgets as they were measured last."""
        low = low_disk(self._settings) or self._over_total()
        if bool(low) != bool(self._low_since_s):
            self._low_since_s = time.time() if low else 0.0
            log.warning("disk.low" if low else "disk.has_room", reason=low)
        return DiskState(low=low, low_since_s=self._low_since_s, over_budget=self._over_budget)

    def measure(self) -> None:
        """Measure what jobs fill, if there is a budget for it."""
        settings = self._settings
        if not (settings.disk_bytes or settings.user_disk_bytes):
            return
        sizes = Leftovers(settings).bytes_by_job()
        users: dict[str, int] = {}
        for job_id, size in sizes.items():
            user = self._user_of(job_id)
            if user is not None:
                users[user] = users.get(user, 0) + size
        at = time.strftime("%H:%M UTC", time.gmtime())
        limit = settings.user_disk_bytes
        self._total_bytes = sum(sizes.values())
        self._over_budget = {
            user: f"The jobs of {user} fill {_shown(size)} of disk, by {at}, and may fill {_shown(limit)}."
            for user, size in users.items()
            if limit and size > limit
        }

    def _over_total(self) -> str:
        limit = self._settings.disk_bytes
        if not limit or self._total_bytes <= limit:
            return ""
        return f"All jobs fill {_shown(self._total_bytes)} of disk and may fill {_shown(limit)} (disk_bytes)."


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:.2f} MB"
