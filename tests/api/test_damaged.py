"""Whatever is wrong with the database, every route answers 503, and no page a mistake of the service."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from api.access.auth import SESSION_COOKIE
from api.dashboard.pages import PAGES
from gavel.types import Scope
from tests.api.access_matrix import BODIES, MATRIX, PROGRAM
from tests.api.conftest import Service
from tests.api.test_access import status_of
from tests.sessions import a_session

TABLES = ("jobs", "rounds", "documents", "tiers", "users", "events", "audit", "operations", "counters", "tokens")


def without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for table in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.commit()


def with_damaged_rows(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE jobs SET spec = '{', progress = '[]'")
        connection.execute("UPDATE documents SET body = x'00'")
        connection.commit()


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


@pytest.mark.skipif(
    os.environ.get("GAVEL_TEST_PROFILE") != "full", reason="300 requests: only with GAVEL_TEST_PROFILE=full"
)
@pytest.mark.parametrize("damage", [without_tables, with_damaged_rows, overwritten])
def test_a_damaged_database_is_503_on_every_route(
    start: Callable[..., Service], damage: Callable[[Path], None]
) -> None:
    service = start()
    name, ann = service.user()
    token = service.token("operator", Scope.OPERATOR)
    operator = service.client(token)
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    operator.cookies.set(SESSION_COOKIE, a_session(service.store, token))
    damage(service.settings.state_dir / "gavel.db")
    statuses = {}
    for route in MATRIX:
        method, path = route.split()
        body = {"json": BODIES[route]} if route in BODIES else {}
        statuses[route] = status_of(operator, method, path.format(job=job_id, user=name, operation=job_id), **body)
    statuses |= {page: status_of(operator, "GET", page) for page in (*PAGES, f"/jobs/{job_id}", "/readyz")}
    assert {route: status for route, status in statuses.items() if status >= 500 and status != 503} == {}
