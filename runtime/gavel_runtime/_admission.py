"""Lets the ranks of a gang in, many at once: a connection that says nothing keeps nobody waiting.

Whoever can reach the port may connect. Each connection has a thread of its own until it has shown the gang's key; when
there are too many without it, the oldest is closed. A rank shows the key within milliseconds, so it is never the one.
"""

import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

STRANGERS_MAX = 128
_LOOK_S = 0.2

Admitted = TypeVar("Admitted")


class Admissions(Generic[Admitted]):
    """Accepts connections on `server` until `close`; what `admit` makes of each comes out of `next`.

    `admit` returns None for a connection that it refuses, and closes it.
    """

    def __init__(self, server: socket.socket, admit: Callable[[socket.socket], Admitted | None]) -> None:
        self._server = server
        self._admit = admit
        self._admitted: queue.SimpleQueue[Admitted] = queue.SimpleQueue()
        self._strangers: dict[int, socket.socket] = {}  # by descriptor, oldest first
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="gavel-hub", daemon=True)
        self._thread.start()

    def next(self, within_s: float) -> Admitted | None:
        """Return the next that was let in; None if nobody was within that time, in seconds."""
        try:
            return self._admitted.get(timeout=max(0.0, within_s))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Accept nobody any more, and close what has not shown the key."""
        self._is_over.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # ends the wait for the next one
        self._thread.join()
        with self._lock:
            for stranger in self._strangers.values():
                _end(stranger)

    def _accept(self) -> None:
        self._server.settimeout(_LOOK_S)
        while not self._is_over.is_set():
            try:
                connected, _ = self._server.accept()
            except OSError:  # nobody came, it is over, or there are too many descriptors for now
                self._is_over.wait(0.001)
                continue
            self._begin(connected)

    def _begin(self, connected: socket.socket) -> None:
        with self._lock:
            if len(self._strangers) >= STRANGERS_MAX:
                _end(self._strangers.pop(next(iter(self._strangers))))
            self._strangers[connected.fileno()] = connected
        threading.Thread(target=self._let_in, args=(connected, connected.fileno()), daemon=True).start()

    def _let_in(self, connected: socket.socket, number: int) -> None:
        admitted = self._admit(connected)
        with self._lock:
            if self._strangers.get(number) is connected:
                del self._strangers[number]
        if admitted is not None:
            self._admitted.put(admitted)


def _end(stranger: socket.socket) -> None:
    """End what its thread waits for; the thread closes it."""
    with suppress(OSError):
        stranger.shutdown(socket.SHUT_RDWR)
