"""A whole service behind a real nginx with TLS, which asks it under another name than browsers use."""

import json
import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.sync_api import Browser, expect

from api.access.oidc import CALLBACK_PATH
from tests.api.conftest import wait_until
from tests.dashboard.conftest import WAIT_MS
from tests.e2e.processes import Member
from tests.nginx import free_port, nginx
from tests.oidc_provider import Running, running, settings_of

LINE = "a line of the log"
PROGRAM = {"argv": ["sh", "-c", f"echo {LINE}; exec sleep 600"], "total_steps": 100}


@dataclass
class Proxied:
    """A service, its address at the proxy, and what trusts the proxy's certificate."""

    member: Member
    url: str
    trust: ssl.SSLContext

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        """An operator who comes from this address."""
        token = (self.member.state_dir / "operator.token").read_text().strip()
        transport = httpx.HTTPTransport(verify=self.trust, local_address=address)
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, transport=transport, headers=headers, timeout=30)

    def logged_clients(self) -> set[str]:
        lines = (self.member.state_dir / "service.log").read_text().splitlines()
        return {each["client"] for each in map(json.loads, lines) if each["event"] == "request.served"}


@pytest.fixture(scope="module")
def provider() -> Iterator[Running]:
    with running() as provider:
        yield provider


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, provider: Running) -> Iterator[Proxied]:
    folder, port = tmp_path_factory.mktemp("proxied"), free_port()
    url = f"https://localhost:{port}"
    provider.tell(redirect_url=url + CALLBACK_PATH)
    oidc = settings_of(provider.url, operator_groups=["admins"], provider_name="Example")
    settings = {
        "GAVEL_OIDC": json.dumps(oidc),
        "GAVEL_PUBLIC_URL": url,
        "GAVEL_ALLOWED_HOSTS": "gavel.example.org",
        "GAVEL_CPU_WORKERS": "1",
    }
    with (
        Member(folder / "state", settings) as member,
        nginx(folder, httpx.URL(member.url).port or 0, port) as trust,
    ):
        yield Proxied(member, url, trust)


def test_a_browser_logs_in_presses_a_button_and_sees_it_live(proxied: Proxied, chromium: Browser) -> None:
    """1. An operator logs in at the public address. 2. A job of somebody else shows. 3. The button cancels it."""
    token = (proxied.member.state_dir / "operator.token").read_text().strip()
    with chromium.new_context(base_url=proxied.url, ignore_https_errors=True) as context, proxied.client() as client:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        page.goto(f"/login#token={token}")
        expect(page.locator("body")).to_have_attribute("data-ready", "yes")
        assert [each["secure"] for each in context.cookies()] == [True]
        job = client.post("/v1/jobs", json=PROGRAM).json()["id"]
        expect(page.locator("#jobs-table tbody tr")).to_have_count(1)
        page.goto(f"/jobs/{job}")
        page.get_by_role("button", name="Cancel").click()
        page.locator("#confirm-yes").click()
        wait_until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] == "CANCELLED")


def test_a_browser_logs_in_at_a_provider_and_out(proxied: Proxied, chromium: Browser, provider: Running) -> None:
    """1. The button leads to the provider and back to the overview. 2. A change passes. 3. The logout ends it."""
    with chromium.new_context(base_url=proxied.url, ignore_https_errors=True) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        provider.of("1", "Ann.Lee", "admins")
        page.goto("/login")
        page.get_by_role("link", name="Log in with Example").click()
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".who")).to_have_text("ann-lee")
        page.goto("/policy")
        expect(page.locator("body")).to_have_attribute("data-ready", "yes")
        status = page.evaluate(
            """async () => (await fetch("/v1/tiers/gold", {method: "PUT", headers: {"X-Gavel-Page": "dashboard",
            "Content-Type": "application/json", "If-None-Match": "*"}, body: "{}"})).status"""
        )
        assert status in (200, 201)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        provider.of("2", "operator", "admins")
        page.get_by_role("link", name="Log in with Example").click()
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("There is a user operator here already")


def test_the_setup_page_shows_what_the_service_finds(proxied: Proxied, chromium: Browser) -> None:
    """The real findings of a real machine, and that the proxy is one that the settings name."""
    token = (proxied.member.state_dir / "operator.token").read_text().strip()
    with chromium.new_context(base_url=proxied.url, ignore_https_errors=True) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        page.goto(f"/login#token={token}")
        page.get_by_role("link", name="Setup").click()
        rows = page.locator("#setup-table tbody tr")
        expect(rows.filter(has_text="a proxy in front is known")).to_have_count(1)
        for about, text in {
            "database": "its tables are current",
            "disk": "GB are free",
            "address": proxied.url,
        }.items():
            row = rows.filter(has=page.get_by_role("rowheader", name=about, exact=True))
            expect(row.locator(".badge")).to_have_text("fine" if about != "disk" else re.compile("fine|to be mended"))
            expect(row).to_contain_text(text)
        expect(rows.filter(has=page.get_by_role("rowheader", name="clock", exact=True))).to_have_count(1)


def test_each_event_is_passed_on_when_it_comes(proxied: Proxied) -> None:
    """A stream never ends, and an event is smaller than any buffer: one that is held back does not come at all."""
    with proxied.client() as client, client.stream("GET", "/v1/watch") as stream:
        events = (line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
        assert next(events) == "event: hello"
        next(events)
        job = client.post("/v1/jobs", json=PROGRAM).json()["id"]
        assert next(line for line in events if job in line)
        with client.stream("GET", f"/v1/jobs/{job}/logs?follow=true") as log:
            assert next(line for line in log.iter_lines() if LINE in line)
        client.post(f"/v1/jobs/{job}/cancel")
        wait_until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] == "CANCELLED")


def test_the_log_of_the_service_names_the_client_and_nobody_names_himself(proxied: Proxied) -> None:
    """1. Through the proxy. 2. With a header that claims another address. 3. Past the proxy, with the same claim."""
    claim = {"X-Forwarded-For": "192.0.2.9"}
    with proxied.client("127.0.0.2") as client:
        client.get("/v1/jobs/0000000000000000")
    with proxied.client("127.0.0.3") as client:
        client.get("/v1/jobs/0000000000000000", headers=claim)
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.4")) as client:
        client.get(f"{proxied.member.url}/v1/jobs", headers=claim)
    wait_until(lambda: proxied.logged_clients() >= {"127.0.0.2", "127.0.0.3", "127.0.0.4"})
    assert "192.0.2.9" not in proxied.logged_clients()


def test_a_body_as_large_as_the_service_takes_passes(proxied: Proxied) -> None:
    """nginx takes 1 MiB by itself; a code version is sent in larger parts."""
    with proxied.client() as client:
        answer = client.post("/v1/code-versions", content=os.urandom(3 << 20))
    assert answer.headers["content-type"].startswith("application/problem+json"), answer.text
    assert answer.status_code != 413
