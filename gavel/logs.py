"""Structured logs: one JSON object a line, bounded on disk."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog

from gavel.errors import BackendUnavailable

LOG_BYTES = 8 << 20
LOG_FILES_KEPT = 3
PROCESSES_MAX = 64


@contextmanager
def claim_log(folder: Path, name: str) -> Iterator[Path]:
    """Yield a log file for this process alone: NAME.log, or NAME-2.log and so on if other processes have those.

    Raises BackendUnavailable if PROCESSES_MAX services run in the folder.
    """
    for own in (name, *(f"{name}-{number}" for number in range(2, PROCESSES_MAX + 1))):
        lock = _lock(folder / f"{own}.lock")
        if lock is not None:
            break
    else:
        raise BackendUnavailable(f"{PROCESSES_MAX} services run in {folder} already")
    try:
        yield folder / f"{own}.log"
    finally:
        os.close(lock)


def _lock(path: Path) -> int | None:
    """A descriptor that locks the file until it is closed; None if another process has locked it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def configure_logs(path: Path) -> None:
    """Send everything that Gavel and its libraries log to `path`, rotated at 8 MiB."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES_KEPT)
    renderer = structlog.processors.JSONRenderer()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
