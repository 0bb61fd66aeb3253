"""A TCP proxy that counts what a client sends: the bytes on the wire, headers included."""

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


class CountingProxy:
    """Forwards connections on a port of its own, `url`, to the service at `target`; `sent_bytes` by clients so far."""

    def __init__(self, target: str) -> None:
        place = urlsplit(target)
        self._target = (place.hostname, place.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            service = socket.create_connection(self._target)
            threading.Thread(target=self._forward, args=(client, service, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(service, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if counts:
                    self.sent_bytes += len(chunk)  # connections of one client follow one another
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()
