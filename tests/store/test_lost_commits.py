"""On PostgreSQL a commit whose answer was lost with the connection is looked up, and not reported as failed."""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gavel.errors import StoreUnavailable
from gavel.store import lost_commits
from gavel.store.sql import SqlStore
from tests.builders import a_spec
from tests.postgresql import Server, emptied

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
pytestmark = pytest.mark.skipif(not IS_FULL, reason="a server and a proxy: only with GAVEL_TEST_PROFILE=full")
NAME = ".s.PGSQL.5432"


class Proxy:
    """Stands between a client and PostgreSQL, and cuts the connection of the next commit: `before` or `after` it."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = str(server / NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / NAME))
        self._listener.listen(64)
        self.cut = ""
        self.refuses = False
        self._connections: list[tuple[list[threading.Thread], tuple[socket.socket, ...]]] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for pumps, sockets in self._connections:
            _shut(*sockets)
            for pump in pumps:
                pump.join()
            for each in sockets:
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                is_cut = threading.Event()
                pumps = [
                    threading.Thread(target=pump, args=(client, server, is_cut), daemon=True)
                    for pump in (self._requests, self._answers)
                ]
                self._connections.append((pumps, (client, server)))
                for pump in pumps:
                    pump.start()

    def _requests(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while request := client.recv(1 << 16):
                if self.cut and b"COMMIT\0" in request:
                    is_before, self.cut = self.cut == "before", ""
                    is_cut.set()
                    if is_before:
                        break
                server.sendall(request)
        _shut(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while (answer := server.recv(1 << 16)) and not is_cut.is_set():
                client.sendall(answer)
        _shut(client, server)


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(postgresql: Server) -> Iterator[tuple[Proxy, Path]]:
    with tempfile.TemporaryDirectory(prefix="gavel-proxy-") as folder:
        made = Proxy(postgresql.socket_dir, Path(folder))
        yield made, Path(folder)
        made.close()


@pytest.fixture
def store(postgresql: Server, migrated_postgresql: str, proxy: tuple[Proxy, Path]) -> Iterator[SqlStore]:
    url = emptied(migrated_postgresql).replace(str(postgresql.socket_dir), str(proxy[1]))
    opened = SqlStore(url)
    yield opened
    opened.close()


def test_a_commit_whose_answer_was_lost_is_acknowledged(store: SqlStore, proxy: tuple[Proxy, Path]) -> None:
    proxy[0].cut = "after"
    made = store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    assert made.created and proxy[0].cut == ""
    assert [job.id for job in store.snapshot().jobs.values()] == [made.job.id]
    assert not store.submit(a_spec(), key="k", body_hash="h", now_s=2.0).created


def test_a_commit_that_never_arrived_is_refused_and_may_be_repeated(store: SqlStore, proxy: tuple[Proxy, Path]) -> None:
    proxy[0].cut = "before"
    with pytest.raises(StoreUnavailable, match="cannot take a write now"):
        store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    assert store.submit(a_spec(), key="k", body_hash="h", now_s=2.0).created


def test_where_nobody_can_tell_the_answer_says_so(
    store: SqlStore, proxy: tuple[Proxy, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_commits, "LIMIT_S", 0.5)
    store.submit(a_spec(), key="first", body_hash="h", now_s=1.0)
    proxy[0].cut, proxy[0].refuses = "after", True
    with pytest.raises(StoreUnavailable, match="with the same Idempotency-Key"):
        store.submit(a_spec(), key="k", body_hash="h", now_s=1.0)
    proxy[0].refuses = False
    assert not store.submit(a_spec(), key="k", body_hash="h", now_s=2.0).created
