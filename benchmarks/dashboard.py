"""How soon a page of the dashboard is ready and how much it loads, with many unfinished jobs, in a real Chromium.

Ready: everything of the overview was asked for, answered and drawn once. The same browser opened the page before, as a
person's has; its files are asked for again, since the service lets nothing be kept without asking.
"""

import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from playwright.sync_api import Browser, Response, sync_playwright

from api.access.auth import SESSION_COOKIE, digest, new_token
from api.app import Services, create_app
from benchmarks.table import Row, run
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.demo.service import wait_until
from gavel.store.sql import SqlStore
from gavel.types import Scope
from tests.dashboard.conftest import CHROMIUM, FLAGS
from tests.dashboard.crowd import gather
from tests.sessions import a_session

WORKERS = 256
PATHS = ("/", "/allocation", "/placements", "/queue", "/tiers", "/nodes")
ENDPOINTS = ("summary", "allocations/current?group_by=auto", "placements", "shares", "queue", "jobs?limit=200")


def rows(quick: bool) -> Iterator[Row]:
    jobs = 1_000 if quick else 10_000
    if CHROMIUM is None:
        sys.exit("no Chromium on the PATH: apt-get install chromium")
    with _served(jobs) as (url, token, session), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for path in PATHS:
            times = [opened(browser, url, session, path) for _ in range(3 if quick else 5)]
            what = f"{path} with {jobs} jobs"
            yield Row(f"{what}: ready", statistics.median(each[0] for each in times), "s", 1.5)
            yield Row(f"{what}: loaded", times[-1][1] / 1e6, "MB", 2.0)
        browser.close()
        yield from _answers(url, token, jobs, 20 if quick else 100)


def _answers(url: str, token: str, jobs: int, repetitions: int) -> Iterator[Row]:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        for path in ENDPOINTS:
            took_ms = sorted(_timed_ms(lambda path=path: client.get(f"/v1/{path}")) for _ in range(repetitions))
            p99 = took_ms[int(0.99 * (len(took_ms) - 1))]
            yield Row(f"GET {path} with {jobs} jobs, median", statistics.median(took_ms), "ms", None)
            yield Row(f"GET {path} with {jobs} jobs, p99", p99, "ms", 100.0)


def _timed_ms(call: Callable[[], httpx.Response]) -> float:
    began = time.perf_counter()
    call().raise_for_status()
    return 1000 * (time.perf_counter() - began)


@contextmanager
def _served(jobs: int) -> Iterator[tuple[str, str, str]]:
    """Address, an operator's token and a session of a service with so many unfinished jobs."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{folder}/gavel.db")
        gather(store, time.time(), jobs=jobs, workers=WORKERS)
        token = new_token()
        store.add_token(digest(token), user="operator", scope=Scope.OPERATOR, now_s=0.0)
        services = Services(
            store=store,
            settings=Settings(state_dir=Path(folder)),
            clock=SystemClock(),
            read_log=lambda _, offset, __: (b"", offset),
            is_scheduler_alive=lambda: True,
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(
                uvicorn.Config(create_app(services), log_level="critical", timeout_graceful_shutdown=1)
            )
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            wait_until(lambda: server.started, 30)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", token, a_session(store, token)
            finally:
                server.should_exit = True
                thread.join(20)
                store.close()


def opened(browser: Browser, url: str, session: str, path: str) -> tuple[float, int]:
    """Seconds until the page is ready, and the bytes that it loaded until then."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, base_url=url)
    context.add_cookies([{"name": SESSION_COOKIE, "value": session, "url": url}])
    page = context.new_page()
    loaded: list[int] = []

    def note(response: Response) -> None:
        if "/v1/watch" not in response.url:
            loaded.append(int(response.headers.get("content-length", 0)))

    page.on("response", note)
    began = time.perf_counter()
    page.goto(path)
    page.wait_for_selector("body[data-ready]")
    ready_s = time.perf_counter() - began
    context.close()
    return ready_s, sum(loaded)


if __name__ == "__main__":
    run("Dashboard", rows)
