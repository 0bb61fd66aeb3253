"""The service behind a real nginx with TLS and the configuration that is shipped. Browsers: tests/dashboard."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from structlog.testing import capture_logs

from api.access.auth import PAGE_HEADER, SESSION_COOKIE
from tests.api.conftest import Service, serve, wait_until
from tests.nginx import free_port, nginx
from tests.sessions import a_session

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


@dataclass
class Proxied:
    """A service, its address at the proxy, and what trusts the proxy's certificate."""

    service: Service
    url: str
    trust: ssl.SSLContext

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        """An operator who comes from this address."""
        transport = httpx.HTTPTransport(verify=self.trust, local_address=address)
        headers = {"Authorization": self.service.operator().headers["authorization"]}
        return httpx.Client(base_url=self.url, transport=transport, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder, port = tmp_path_factory.mktemp("proxied"), free_port()
    url = f"https://localhost:{port}"
    for service in serve(folder, public_url=url, allowed_hosts="gavel.example.org"):
        with nginx(folder, httpx.URL(service.url).port or 0, port) as trust:
            yield Proxied(service, url, trust)


def test_each_event_is_passed_on_when_it_comes(proxied: Proxied) -> None:
    """A stream never ends, and an event is smaller than any buffer: one that is held back does not come at all."""
    with proxied.client() as client, client.stream("GET", "/v1/watch") as stream:
        events = (line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
        assert next(events) == "event: hello"
        next(events)
        job = client.post("/v1/jobs", json=PROGRAM).json()["id"]
        assert next(line for line in events if job in line)
        (proxied.service.logs / job).write_text("a line of the log\n")
        with client.stream("GET", f"/v1/jobs/{job}/logs?follow=true") as log:
            assert next(line for line in log.iter_lines() if "a line of the log" in line)


def test_a_page_of_the_public_address_changes_things_though_the_host_is_another(proxied: Proxied) -> None:
    """And its cookie is for https only; a page of the address behind the proxy is one of another site there."""
    token = proxied.service.operator().headers["authorization"].split()[1]
    session = a_session(proxied.service.store, token)
    with httpx.Client(base_url=proxied.url, verify=proxied.trust, cookies={SESSION_COOKIE: session}) as browser:
        for origin, status in ((proxied.url, 201), ("https://gavel.example.org", 401)):
            headers = {PAGE_HEADER: "dashboard", "Origin": origin}
            assert browser.post("/v1/jobs", json=PROGRAM, headers=headers).status_code == status
        login = browser.post("/login", data={"token": token}, headers={"Origin": proxied.url})
    assert "; secure" in login.headers["set-cookie"].lower()


def test_the_log_of_the_service_names_the_client_and_nobody_names_himself(proxied: Proxied) -> None:
    """1. Through the proxy. 2. With a header that claims another address."""
    with capture_logs() as lines:
        for address, claim in (("127.0.0.2", {}), ("127.0.0.3", {"X-Forwarded-For": "192.0.2.9"})):
            with proxied.client(address) as client:
                client.get("/v1/jobs/0000000000000000", headers=claim)
        wait_until(lambda: len(lines) >= 2)
    assert [each["client"] for each in lines if each["event"] == "request.served"] == ["127.0.0.2", "127.0.0.3"]


def test_a_body_as_large_as_the_service_takes_passes(proxied: Proxied) -> None:
    """nginx takes 1 MiB by itself; the code of jobs is sent in larger parts."""
    with proxied.client() as client:
        answer = client.post("/v1/code-versions", content=os.urandom(3 << 20))
    assert answer.headers["content-type"].startswith("application/problem+json"), answer.text
    assert answer.status_code != 413
