"""Structured logs: one JSON object a line, bounded on disk."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog

LOG_BYTES = 8 << 20
LOG_FILES_KEPT = 3


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
