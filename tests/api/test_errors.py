"""Errors are problem documents, whatever went wrong."""

import sqlite3
from collections.abc import Callable

import pytest

from api.http.errors import KINDS
from gavel.store.sql import SqlStore
from gavel.types import Identity
from tests.api.conftest import Service

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/jobs/nosuchjob", 404),
        ("GET", "/v1/rounds/12345", 404),
        ("GET", "/v1/tiers/nosuchtier", 404),
        ("DELETE", "/v1/jobs", 405),
        ("GET", "/v1/jobs/UPPER", 422),
        ("GET", "/v1/rounds/x", 422),
        ("GET", "/v1/rounds/-1", 422),
        ("GET", f"/v1/rounds/{10**30}", 422),
        ("GET", "/v1/jobs/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/jobs/%00", 422),
        ("GET", "/v1/tiers/%ff%fe", 422),
    ],
)
def test_an_error_is_a_problem_document_of_a_known_type(service: Service, method: str, path: str, status: int) -> None:
    _, ann = service.user()
    answer = ann.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["title"]) == KINDS[status]
    assert problem["status"] == status
    assert problem["detail"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/jobs", "GET, POST"),
        ("/v1/tiers/gold", "GET, PUT"),
        ("/v1/users/ann/tokens", "GET, POST"),
        ("/healthz", "GET"),
    ],
)
def test_a_wrong_method_is_told_all_the_right_ones(service: Service, path: str, methods: str) -> None:
    answer = service.operator().patch(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_a_database_that_cannot_write_acknowledges_nothing(start: Callable[..., Service]) -> None:
    service = start()
    _, ann = service.user()
    other = sqlite3.connect(str(service.settings.state_dir / "gavel.db"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        answer = ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert ann.get("/v1/jobs").json()["items"] == []
    finally:
        other.execute("ROLLBACK")
        other.close()
    again = ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201
    assert "idempotency-replayed" not in again.headers


def test_a_fault_of_the_service_tells_nothing_of_its_inside(
    start: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start()

    def broken(self: SqlStore, token_hash: str) -> Identity:
        raise RuntimeError("canary-4711")

    _, ann = service.user()
    monkeypatch.setattr(SqlStore, "identify", broken)
    answer = ann.get("/v1/jobs")
    assert (answer.status_code, answer.json()["type"]) == (500, "internal-error")
    assert "canary" not in answer.text
    assert answer.headers["connection"] == "close"
    monkeypatch.undo()
    assert ann.get("/v1/jobs").status_code == 200


def test_alive_and_ready_are_two_things(start: Callable[..., Service]) -> None:
    service = start()
    anybody = service.client()
    assert anybody.get("/readyz").json() == {"status": "ok"}
    service.scheduler.clear()
    assert anybody.get("/healthz").json() == {"status": "ok"}
    answer = anybody.get("/readyz")
    assert (answer.status_code, "scheduler" in answer.json()["detail"]) == (503, True)


def test_metrics_do_not_grow_with_paths_that_do_not_exist(service: Service) -> None:
    operator = service.operator()
    for index in range(5):
        operator.get(f"/v1/nothing/{index}")
        operator.request(f"M{index}", "/v1/nothing")
    text = operator.get("/metrics").text
    assert "/v1/nothing" not in text
    assert 'gavel_http_requests_total{method="any",route="none",status="404"}' in text
    assert 'method="M1"' not in text
