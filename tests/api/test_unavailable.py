"""A locked database, a full disk: 503 with Retry-After, nothing acknowledged is lost, and the service goes on after."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, event

from gavel.store.maintenance import check
from gavel.store.sql import SqlStore
from tests.api.conftest import Service
from tests.api.test_submit import PROGRAM

PAGES = 90  # of 4 KiB: room for the tables and a few jobs


@contextmanager
def another_writer(service: Service) -> Iterator[None]:
    """Another program that holds a write transaction open."""
    with closing(sqlite3.connect(service.settings.state_dir / "gavel.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"] == "unavailable" and int(answer.headers["retry-after"]) > 0


def test_while_the_database_is_locked_writes_wait_for_another_try_and_reads_go_on(service: Service) -> None:
    _, ann = service.user()
    operator = service.operator()
    job = ann.post("/v1/jobs", json=PROGRAM).json()
    again = {"Idempotency-Key": "during-the-lock"}
    with another_writer(service):
        unavailable(ann.post("/v1/jobs", json=PROGRAM, headers=again))
        unavailable(ann.post(f"/v1/jobs/{job['id']}/pause"))
        unavailable(ann.patch(f"/v1/jobs/{job['id']}", json={"weight": 2.0}, headers={"If-Match": "*"}))
        unavailable(operator.put("/v1/tiers/new", json={"weight": 2.0}))
        assert ann.get(f"/v1/jobs/{job['id']}").json() == job
    assert ann.post("/v1/jobs", json=PROGRAM, headers=again).status_code == 201
    assert len(ann.get("/v1/jobs").json()["items"]) == 2
    assert ann.get(f"/v1/jobs/{job['id']}").json()["weight"] == 1.0


def test_a_full_disk_refuses_and_keeps_what_it_acknowledged(start: Callable[..., Service]) -> None:
    @event.listens_for(Engine, "connect")
    def bound_pages(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {PAGES}")

    try:
        service = start()
        _, ann = service.user()
        acknowledged = []
        for _ in range(1000):
            answer = ann.post("/v1/jobs", json=PROGRAM | {"env": {"PADDING": "x" * 2000}})
            if answer.status_code != 201:
                break
            acknowledged.append(answer.json()["id"])
        unavailable(answer)
        unavailable(ann.post("/v1/jobs/array", json={"job": PROGRAM, "count": 50}))
        listed = [each["id"] for each in ann.get("/v1/jobs?limit=200").json()["items"]]
        assert acknowledged and listed == acknowledged[::-1]
    finally:
        event.remove(Engine, "connect", bound_pages)
    report = check(f"sqlite:///{service.settings.state_dir}/gavel.db")
    assert (report.jobs, report.faults) == (len(acknowledged), ())


SUBMIT_UNTIL_REFUSED = """
import sys
from gavel.errors import StoreUnavailable
from gavel.store.sql import SqlStore
from gavel.types import JobSpec
store = SqlStore(sys.argv[1])
spec = JobSpec(kind="mlp", user="ann", tier="default", argv=("x" * 4000,), total_steps=1)
try:
    for _ in range(10_000):
        print(store.submit(spec, key=None, body_hash="h", now_s=1.0).job.id, flush=True)
except StoreUnavailable as error:
    print(f"refused: {error}", flush=True)
"""


def bounded_files() -> None:
    """Limit the size of the process's files: a larger write fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.full
def test_a_process_whose_files_cannot_grow_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gavel.db"
    SqlStore(url).close()
    completed = subprocess.run(
        [sys.executable, "-c", SUBMIT_UNTIL_REFUSED, url],
        preexec_fn=bounded_files,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    *acknowledged, last = completed.stdout.splitlines()
    assert last.startswith("refused: the database cannot take a write now") and len(acknowledged) > 10
    store = SqlStore(url)
    assert set(acknowledged) <= set(store.snapshot().jobs)
    store.close()
    assert check(url).faults == ()
