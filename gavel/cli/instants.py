"""Instants as people write them on the command line."""

from datetime import datetime

from gavel.cli.connection import fail


def instant_if(option: str, text: str | None) -> float | None:
    """Return the instant that an option names, Unix time; None without it. End the command for a text that is none.

    It is ISO 8601, in the time zone of this machine unless the text names another one.
    """
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError):
        fail(f"{option} {text}: write a date and a time, such as 2026-12-01T09:00, or 2026-12-01T09:00Z for UTC")
