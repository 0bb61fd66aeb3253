"""The real application on a real clock over a real store, and a real Chromium that looks at it."""

import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from api.access.auth import SESSION_COOKIE, digest, new_token
from api.app import Services, create_app
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.store.sql import SqlStore
from gavel.types import Scope
from tests.api.conftest import wait_until
from tests.quiet_network import quiet_network
from tests.sessions import a_session

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
WAIT_MS = 60_000
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class Dashboard:
    """A served dashboard, its store and its logs."""

    url: str
    store: SqlStore
    token: str
    logs: Path

    @cached_property
    def session(self) -> str:
        """The id of an operator's session."""
        return a_session(self.store, self.token)

    def read_log(self, job_id: str, offset: int, limit_bytes: int) -> tuple[bytes, int]:
        path = self.logs / job_id
        content = path.read_bytes()[offset : offset + limit_bytes] if path.exists() else b""
        return content, offset + len(content)


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """An empty service, with an operator's token."""
    store = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}")
    listener = socket.create_server(("127.0.0.1", 0))
    served = Dashboard(f"http://127.0.0.1:{listener.getsockname()[1]}", store, new_token(), tmp_path / "logs")
    served.logs.mkdir()
    store.add_token(digest(served.token), user="operator", scope=Scope.OPERATOR, now_s=0.0)
    services = Services(
        store=store,
        settings=Settings(state_dir=tmp_path),
        clock=SystemClock(),
        read_log=served.read_log,
        is_scheduler_alive=lambda: True,
    )
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield served
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
        store.close()


@pytest.fixture(scope="module", autouse=True)
def network() -> Iterator[None]:
    """Tests beside this one make network interfaces: Chromium ends its requests then (ERR_NETWORK_CHANGED)."""
    with quiet_network():
        yield


@pytest.fixture(scope="package")  # while it is there, nothing else in this thread may run an event loop
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH: install the package `chromium` to run the browser tests")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page, and everything that went wrong on it."""

    page: Page
    errors: list[str]

    def wait_for_paint(self) -> None:
        """Charts are drawn at the next frame after their table."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"
        )


@pytest.fixture
def tab(chromium: Browser, dashboard: Dashboard) -> Iterator[Tab]:
    """A logged-in tab; the test fails if its console shows an error."""
    context: BrowserContext = chromium.new_context(
        viewport={"width": 1360, "height": 900}, base_url=dashboard.url, reduced_motion="reduce"
    )
    context.add_cookies([{"name": SESSION_COOKIE, "value": dashboard.session, "url": dashboard.url}])
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield Tab(page, errors)
    context.close()
    assert errors == []
