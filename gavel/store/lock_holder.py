"""Which process of this machine is in the middle of a write to a SQLite database, as the kernel says it."""

import os

from sqlalchemy import Engine

WRITE, RECOVER = 120, 122
"""Bytes of DATABASE-shm that a process locks while it writes, checkpoints or recovers (SQLite, os_unix.c, wal.c)."""


def write_lock_holder(engine: Engine) -> int | None:
    """Return the pid of the process that keeps others from writing; None if there is none, or it cannot be known."""
    if engine.dialect.name != "sqlite":
        return None
    try:
        inode = os.stat(f"{engine.url.database}-shm").st_ino
        # Asking by fcntl needs the file open, and closing it would drop this process's own locks on it.
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
    except OSError:
        return None
    holders = (int(lock[-4]) for lock in locks if "WRITE" in lock and "->" not in lock and _is_on(lock, inode))
    return next(holders, None)


def _is_on(lock: list[str], inode: int) -> bool:
    """Return whether a line of /proc/locks, `.. PID MAJOR:MINOR:INODE FIRST LAST`, is of one of these bytes."""
    place, first, last = lock[-3:]
    return place.rpartition(":")[2] == str(inode) and int(first) >= WRITE and last != "EOF" and int(last) <= RECOVER
