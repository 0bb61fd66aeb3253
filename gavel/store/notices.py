"""Notifications between processes on PostgreSQL. A process that misses one sees the change at its next poll."""

import threading
from collections.abc import Callable

from sqlalchemy import Connection, make_url

CHANNEL = "gavel"
STOP_POLL_S = 0.2
RECONNECT_S = 1.0


def notify(connection: Connection) -> None:
    """Notify every listener once the transaction is committed; several calls in one transaction count once."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


class Listener:
    """Calls `on_change` for each notification, from its own thread, until closed."""

    def __init__(self, url: str, on_change: Callable[[], None]) -> None:
        place = make_url(url).set(drivername="postgresql")
        self._place = place.render_as_string(hide_password=False)
        self._on_change = on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gavel-store-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                self._listen()
            except psycopg.OperationalError:  # the server went away; whoever listens polls meanwhile
                self._stopping.wait(RECONNECT_S)

    def _listen(self) -> None:
        import psycopg

        with psycopg.connect(self._place, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._on_change()  # something may have been missed before
            while not self._stopping.is_set():
                for _ in connection.notifies(timeout=STOP_POLL_S, stop_after=1):
                    self._on_change()
