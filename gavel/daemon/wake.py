"""How an API process wakes the process of its machine that leads the scheduler: a datagram to a socket.

Where the two share a database file this is what LISTEN and NOTIFY are on PostgreSQL. Who is not heard is found by the
scheduler's next look at the database.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path


class Doorbell:
    """A socket file. Safe from any thread."""

    def __init__(self, path: Path) -> None:
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._address = f"/proc/self/fd/{self._folder}/{path.name}"  # a socket's path has at most 107 characters
        self._sender = _socket()
        self._sender.setblocking(False)

    def close(self) -> None:
        """Let go of the folder."""
        self._sender.close()
        os.close(self._folder)

    def ring(self) -> None:
        """Wake whoever leads here, if anybody does; never waits."""
        with suppress(OSError):  # nobody listens, or it has been rung for more often than it looked
            self._sender.sendto(b"!", self._address)

    @contextmanager
    def answered_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` for each ring, from another thread, instead of whoever listened before."""
        with closing(_socket()) as listener:
            with suppress(FileNotFoundError):
                os.unlink(self._address)
            listener.bind(self._address)
            os.chmod(self._address, 0o600)
            thread = threading.Thread(target=_listen, args=(listener, wake), name="doorbell", daemon=True)
            thread.start()
            try:
                yield
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _listen(listener: socket.socket, wake: Callable[[], None]) -> None:
    while listener.recv(1):
        wake()
