"""Who may change this machine's networks, and when: Chromium drops what it loads when an address comes or goes."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCKS = Path(tempfile.gettempdir())


@contextmanager
def quiet_network() -> Iterator[None]:
    """No other test changes the networks meanwhile; so many tests at once as there are workers."""
    with _held("gate", fcntl.LOCK_SH):  # who wants to change them and waits is let through first
        pass
    with _held("network", fcntl.LOCK_SH):
        yield


@contextmanager
def changing_network() -> Iterator[None]:
    """No other test needs a quiet network meanwhile."""
    with _held("gate", fcntl.LOCK_EX), _held("network", fcntl.LOCK_EX):
        yield


@contextmanager
def _held(name: str, kind: int) -> Iterator[None]:
    file = os.open(_LOCKS / f"gavel-tests-{os.getuid()}-{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)
