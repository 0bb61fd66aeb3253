"""The live service at the size of a large site: 100,000 unfinished jobs on 10,000 simulated nodes.

A real `gavel serve` on SQLite and, where it is installed, on PostgreSQL, with the backend `simulated`. The state is
stored first, then the service plans two rounds of it; it is started again with that state, and measured from outside.
Everything runs on the same cores, the client and the browser, too.
"""

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import sync_playwright

from benchmarks.dashboard import PATHS, opened
from benchmarks.load import own_processes
from benchmarks.scale_state import fill
from benchmarks.table import Row, run
from gavel.demo.service import ServiceProcess, wait_until
from gavel.store.sql import SqlStore
from tests.dashboard.conftest import CHROMIUM, FLAGS
from tests.postgresql import INSTALLED, running_server
from tests.sessions import a_session

LIMIT_S = 600.0
CHANGES = 5  # how often a first answer after a change is measured
ANSWERS = ("list", "job", "queue", "matrix")
JOB = {"argv": ["virtual", "late"], "kind": "operator/late", "total_steps": 1000}


@dataclass(frozen=True, slots=True)
class Size:
    """How large the state is, and how long it is measured."""

    jobs: int
    nodes: int
    round_s: float
    rounds: int

    @property
    def settings(self) -> dict[str, str]:
        third = self.nodes // 3
        nodes = {"v100": third, "p100": third, "k80": self.nodes - 2 * third}
        return {
            "GAVEL_BACKEND": "simulated",
            "GAVEL_SIMULATED_NODES": json.dumps(nodes),
            "GAVEL_SIMULATED_REPORT_PERIOD_S": "60",
            "GAVEL_ROUND_DURATION_S": str(self.round_s),
            "GAVEL_SOLVE_TIME_LIMIT_S": "20",
            "GAVEL_UNFINISHED_JOBS_PER_USER": "1000000",
        }


def rows(quick: bool) -> Iterator[Row]:
    size = Size(5_000, 500, 10, 2) if quick else Size(100_000, 10_000, 60, 3)
    yield from _measured("SQLite", size, None)
    if not any(INSTALLED.glob("*/bin/initdb")):
        print("PostgreSQL is not installed here: measured on SQLite only", file=sys.stderr)
        return
    with running_server() as server:
        yield from _measured("PostgreSQL", size, server.new_database())


def _measured(database: str, size: Size, url: str | None) -> Iterator[Row]:
    """Yield all rows of one database."""
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder) / "state"
        state_dir.mkdir(mode=0o700)
        database_url = url or f"sqlite:///{state_dir}/gavel.db"
        store = SqlStore(database_url)
        fill(store, time.time(), jobs=size.jobs)
        store.close()
        service = ServiceProcess(state_dir, size.settings | {"GAVEL_DATABASE_URL": database_url}, start_limit_s=LIMIT_S)
        with service:
            assert wait_until(lambda: len(_rounds(service)) >= 2, LIMIT_S), service.output()
        for row in _running(service, size, database_url):
            yield Row(f"{database}: {row.name}", row.value, row.unit, row.target)


def _running(service: ServiceProcess, size: Size, database_url: str) -> Iterator[Row]:
    earlier, began = len(_rounds(service)), time.perf_counter()
    with service, _client(service) as client:
        listed = client.get("/v1/jobs").raise_for_status().json()
        yield Row("start, to the first list of jobs", time.perf_counter() - began, "s", 20)
        client.get("/v1/queue").raise_for_status()
        yield Row("start, to the first queue", time.perf_counter() - began, "s", 20)
        job_ids = [each["id"] for each in listed["items"]]
        yield from _answers(client, job_ids, lambda: len(_rounds(service)) >= earlier + size.rounds)
        yield from _after_changes(client)
        for path, seconds in _pages(service, database_url):
            yield Row(f"page {path} ready", seconds, "s", 5)
        yield from _of_rounds(_rounds(service)[earlier:])
        yield Row("memory of all processes", sum(_memory_bytes(service.process)) / 1e9, "GB", 2)
        waiting = client.get("/v1/summary").json()["jobs"]
        yield Row("unfinished jobs at the end", sum(waiting.values()), "jobs")


def _of_rounds(rounds: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    yield Row("round, median", statistics.median(each["seconds"] for each in rounds), "s", 5)
    yield Row("round, longest", max(each["seconds"] for each in rounds), "s", 5)
    yield Row("tick between rounds, median", 1e3 * statistics.median(each["tick_s"] for each in rounds), "ms", 200)
    yield Row("tick between rounds, longest", 1e3 * max(each["longest_tick_s"] for each in rounds), "ms")
    yield Row("ticks between rounds", sum(each["ticks"] for each in rounds), "ticks")


def _rounds(service: ServiceProcess) -> list[dict[str, float]]:
    """What rounds and the ticks between them took, by the service's log."""
    log = service.state_dir / "scheduler.log"
    lines = (json.loads(line) for line in log.read_text().splitlines() if line) if log.exists() else ()
    return [line for line in lines if line.get("event") == "round.committed"]


# --- answers ----------------------------------------------------------------------------------------------------


def _path(what: str, job_ids: Sequence[str]) -> str:
    paths = {
        "list": "/v1/jobs?limit=50",
        "job": f"/v1/jobs/{random.choice(job_ids)}",
        "queue": "/v1/queue",
        "matrix": "/v1/allocations/current?group_by=tier_and_kind",
    }
    return paths[what]


def _answers(client: httpx.Client, job_ids: Sequence[str], is_over: Callable[[], bool]) -> Iterator[Row]:
    """Ask one after the other until the rounds are over, so that answers during a round count, too."""
    took_ms: dict[str, list[float]] = {what: [] for what in ANSWERS}
    give_up_at_s = time.monotonic() + LIMIT_S
    while not is_over() and time.monotonic() < give_up_at_s:
        for what in ANSWERS:
            took_ms[what].append(_ask_ms(client, _path(what, job_ids)))
    for what, taken in took_ms.items():
        yield Row(f"{what}, p50 of {len(taken)}", statistics.median(taken), "ms")
        yield Row(f"{what}, p99", sorted(taken)[math.ceil(0.99 * len(taken)) - 1], "ms", 150)


def _after_changes(client: httpx.Client) -> Iterator[Row]:
    """The first answer after a submission, which any process may have made."""
    for what in ("queue", "matrix"):
        taken = []
        for _ in range(CHANGES):
            answer = client.post("/v1/jobs", json=JOB)
            assert answer.is_success, answer.text
            job_id = answer.json()["id"]
            taken.append(_ask_ms(client, _path(what, [job_id])))
        yield Row(f"{what}, first after a change, median", statistics.median(taken), "ms", 150)


def _ask_ms(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return 1e3 * (time.perf_counter() - began)


@contextmanager
def _client(service: ServiceProcess) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.operator_token}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=LIMIT_S, trust_env=False) as client:
        yield client


# --- pages and memory -------------------------------------------------------------------------------------------


def _pages(service: ServiceProcess, database_url: str) -> Iterator[tuple[str, float]]:
    """Seconds until each page of the dashboard is ready, the second time that the browser opens it."""
    if CHROMIUM is None:
        print("no Chromium on the PATH: pages are not measured", file=sys.stderr)
        return
    store = SqlStore(database_url)
    session = a_session(store, service.operator_token)
    store.close()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for path in PATHS:
            yield path, min(opened(browser, service.url, session, path)[0] for _ in range(2))
        browser.close()


def _memory_bytes(service: psutil.Process) -> Iterator[int]:
    """Memory of each process of the service; what several share counts once."""
    for each in own_processes(service):
        yield each.memory_full_info().pss


if __name__ == "__main__":
    run("Scale of the live service", rows)
