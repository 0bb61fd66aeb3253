"""How an API process wakes the scheduler that leads on the same machine: by a datagram to a Unix socket.

For a database file this does what LISTEN and NOTIFY do on PostgreSQL. If a datagram is lost, the scheduler sees the
change the next time that it reads the database.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path


class Doorbell:
    """A socket file that wakes the process listening on it. Safe from any thread."""

    def __init__(self, path: Path) -> None:
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._address = f"/proc/self/fd/{self._folder}/{path.name}"  # a socket's path has at most 107 characters
        self._sender = _socket()
        self._sender.setblocking(False)

    def close(self) -> None:
        """Close the sender and the folder."""
        self._sender.close()
        os.close(self._folder)

    def ring(self) -> None:
        """Wake the process that listens, if one does; never waits."""
        with suppress(OSError):  # nobody listens, or unread datagrams fill the socket: it is woken anyway
            self._sender.sendto(b"!", self._address)

    @contextmanager
    def answered_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` for each ring, from another thread; a process that listened before no longer hears any."""
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
