"""Requests that are sent in part: the connection ends, and nobody else notices."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.http import half_sent
from gavel.types import Scope
from tests.api.conftest import Service, wait_until
from tests.e2e.processes import Member

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        yield client


def to_the_end(client: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    received = b""
    while part := client.recv(4096):
        received += part
    return received


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_sent, "HEAD_S", 0.3)
    monkeypatch.setattr(half_sent, "BODY_S", 0.3)


@pytest.mark.parametrize(("sent", "status"), [(HEAD, b"408"), (b"G", b"408"), (b"", b"")])
def test_half_a_head_ends_its_connection(service: Service, sent: bytes, status: bytes) -> None:
    """Who has sent nothing is answered nothing: browsers open connections that they may need."""
    with connected(service.url) as client:
        client.sendall(sent)
        assert to_the_end(client)[9:12] == status


def test_so_does_half_a_head_after_a_whole_request(service: Service) -> None:
    with connected(service.url) as client:
        client.sendall(HEAD + b"\r\n" + HEAD)
        received = to_the_end(client)
    assert received.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 408" in received


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nHost: a\x01b\r\n\r\n", b"GET /?" + 65_536 * b"a" + b" HTTP/1.1\r\n\r\n"]
)
def test_what_is_not_http_is_answered_with_a_problem_that_says_what_may_be_wrong(service: Service, head: bytes) -> None:
    with connected(service.url) as client:
        client.sendall(head)
        answer, _, body = to_the_end(client).partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert answer.startswith(b"HTTP/1.1 400") and b"application/problem+json" in answer
    assert (problem["status"], problem["type"]) == (400, "bad-request") and "65,535 bytes" in problem["detail"]


def test_half_a_body_ends_its_connection_and_its_request(service: Service) -> None:
    token = service.token("operator", Scope.OPERATOR)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    with connected(service.url) as client:
        client.sendall(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        assert b"HTTP/1.1 2" not in to_the_end(client)
    counted = 'gavel_http_requests_total{method="POST",route="/v1/jobs",status="400"}'
    wait_until(lambda: counted in service.operator().get("/metrics").text)


def test_a_body_that_comes_has_the_time_that_it_needs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of it gives more time than passes until the next."""
    monkeypatch.setattr(half_sent, "BYTES_PER_S", 0.1)
    body = b'{"argv": ["x"], "total_steps": 1}'
    token = service.token("operator", Scope.OPERATOR)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(service.url) as client, connected(service.url) as other:
        client.sendall(head.encode() + body[:5])
        assert to_the_end(other) == b"", "longer than a body without a further byte has"
        client.sendall(body[5:])
        assert b"HTTP/1.1 201" in to_the_end(client)


def test_many_of_them_shut_nobody_out(service: Service) -> None:
    others = [socket.create_connection(service.url.removeprefix("http://").split(":")) for _ in range(50)]
    for each in others:
        each.sendall(HEAD)
    assert service.client().get("/healthz").status_code == 200
    for each in others:
        with each:
            assert to_the_end(each)[9:12] == b"408"


@pytest.mark.skipif(not IS_FULL, reason="a whole service: only with GAVEL_TEST_PROFILE=full")
def test_the_service_itself_ends_half_a_request(tmp_path: Path) -> None:
    with Member(tmp_path / "state", {}) as member, connected(member.url) as client:
        client.sendall(HEAD)
        assert to_the_end(client)[9:12] == b"408"
