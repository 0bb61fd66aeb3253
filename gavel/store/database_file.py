"""Notices that the file of a database was deleted or replaced while this process uses it.

SQLite would go on writing to the deleted file, and what it acknowledged would be gone with the process.
"""

import os
from typing import Any

import structlog
from sqlalchemy import Engine, event

from gavel.errors import StoreUnavailable

log = structlog.get_logger("gavel.store")


class DatabaseFile:
    """The file as it was when it was opened. An open descriptor keeps the number of its inode from being used again."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Any other descriptor would, when it is closed, give up the locks that SQLite has on the file.
        self._file: int | None = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._is_here = True

    def check(self) -> None:
        """Raise StoreUnavailable unless the path still leads to this file; after `close` nothing is known of it."""
        if self._file is None:
            return
        opened = os.fstat(self._file)
        try:
            present = os.stat(self._path)
            is_here = (present.st_dev, present.st_ino) == (opened.st_dev, opened.st_ino)
        except OSError:
            is_here = False
        if self._is_here and not is_here:
            log.error("database.gone", path=self._path)
        self._is_here = is_here
        if not is_here:
            raise StoreUnavailable(
                f"{self._path} was deleted or replaced while the service used it, so nothing is read or written: "
                "stop every service, put the database or a backup in its place, and start again"
            )

    def close(self) -> None:
        """Close the descriptor. Closing twice does no harm."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def watch_file(writer: Engine, reader: Engine) -> None:
    """Let both engines of an SQLite database give no connection once its file is not the same any more."""
    file = DatabaseFile(str(writer.url.database))

    def check(*_: Any) -> None:
        file.check()

    for engine in (writer, reader):
        event.listen(engine, "do_connect", check)  # a new connection would make an empty file
        event.listen(engine, "checkout", check)
    event.listen(writer, "engine_disposed", lambda _: file.close())
