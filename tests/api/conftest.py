"""A real server on a free loopback port over a real SQLite store."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import uvicorn

from api.access.auth import digest, new_token
from api.app import Services, create_app
from api.http.half_sent import TimedRequests
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.mechanism.cluster.configured import as_configured
from gavel.mechanism.planning.reservations import Reservations
from gavel.ports import Changes
from gavel.store.sql import SqlStore
from gavel.types import Cluster, Job, Scope, Tier, User
from tests.builders import a_cluster

NOW_S = 1_000_000.0
ROUND_S = 60.0


def wait_until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.01)


@dataclass
class Service:
    """The server under test, and the parts behind it."""

    url: str
    store: SqlStore
    clock: ManualClock
    settings: Settings
    logs: Path
    scheduler: threading.Event = field(default_factory=threading.Event)
    clients: list[httpx.Client] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.clients.append(httpx.Client(base_url=self.url, headers=headers, timeout=30))
        return self.clients[-1]

    def token(self, user: str, scope: Scope = Scope.USER, job_id: str | None = None) -> str:
        token = new_token()
        self.store.add_token(digest(token), user=user, scope=scope, job_id=job_id, now_s=NOW_S)
        return token

    def user(self, *tiers: str) -> tuple[str, httpx.Client]:
        """Create a user with these tiers; return its name and a client with its token."""
        name = f"user{next(self.names)}"
        self.store.put_user(User(name=name, tiers=tiers or ("gold", "silver")), by="test", now_s=NOW_S)
        return name, self.client(self.token(name))

    def operator(self) -> httpx.Client:
        return self.client(self.token("operator", Scope.OPERATOR))

    def change(self, *jobs: Job, **over: object) -> None:
        """Commit what the scheduler would commit."""
        self.store.commit(self.store.snapshot().version, Changes(jobs=jobs, **over))  # type: ignore[arg-type]

    def read_log(self, job_id: str, offset: int, limit_bytes: int) -> tuple[bytes, int]:
        path = self.logs / job_id
        content = path.read_bytes()[offset : offset + limit_bytes] if path.exists() else b""
        return content, offset + len(content)


def serve(
    tmp_path: Path, *, cluster: Cluster | None = None, listens_on: str = "127.0.0.1", **limits: object
) -> Iterator[Service]:
    (tmp_path / "logs").mkdir()
    store = SqlStore(
        f"sqlite:///{tmp_path / 'gavel.db'}",
        busy_timeout_s=1.0,
        jobs_per_user=limits.get("unfinished_jobs_per_user"),
        reservation_rule=Reservations(settings=Settings(round_duration_s=ROUND_S)),
    )  # type: ignore[arg-type]
    store.put_tier(Tier(name="gold", guarantee=0.5), expected_version=None, by="test", now_s=NOW_S)
    store.put_tier(Tier(name="silver"), expected_version=None, by="test", now_s=NOW_S)
    listener = socket.create_server((listens_on, 0))
    # asyncio does this only for sockets of a stated protocol; without it each small answer waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    service = Service(
        url=f"http://{listens_on}:{listener.getsockname()[1]}",
        store=store,
        clock=ManualClock(NOW_S),
        settings=Settings(
            **{
                "state_dir": tmp_path,
                "image_command": "sh",
                "notification_webhook_url": "http://127.0.0.1:9/",
                "job_folders": "/",
                **limits,
            }
        ),  # type: ignore[arg-type]
        logs=tmp_path / "logs",
    )
    service.scheduler.set()
    if cluster is None:
        facts = {"node_labels": {"node-0": {"disk": "nvme"}}, "accelerator_memory_bytes": {"fast": 16 << 30}}
        cluster = as_configured(a_cluster(fast=2, slow=4), **facts)  # type: ignore[arg-type]
    if cluster.workers:
        service.change(cluster=cluster)
    app = create_app(
        Services(
            store=store,
            settings=service.settings,
            clock=service.clock,
            read_log=service.read_log,
            is_scheduler_alive=service.scheduler.is_set,
        )
    )
    server = uvicorn.Server(uvicorn.Config(app, http=TimedRequests, log_level="critical", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield service
    finally:
        for client in service.clients:
            client.close()
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
        store.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One server for the tests of a module: each test brings users of its own."""
    yield from serve(tmp_path_factory.mktemp("service"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts a server with other limits or another cluster."""
    running: list[Iterator[Service]] = []

    def begin(**over: object) -> Service:
        running.append(serve(tmp_path, **over))  # type: ignore[arg-type]
        return next(running[-1])

    yield begin
    for each in running:
        next(each, None)
