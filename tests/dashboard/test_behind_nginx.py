"""A browser before a whole service behind a real nginx, which asks it under another name than browsers use.

tests/api/test_nginx.py has what needs no browser.
"""

import json
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

pytestmark = pytest.mark.full
PROGRAM = {"argv": ["sh", "-c", "exec sleep 600"], "total_steps": 100}


@dataclass
class Proxied:
    """A service, its address at the proxy, and what trusts the proxy's certificate."""

    member: Member
    url: str
    trust: ssl.SSLContext

    def client(self) -> httpx.Client:
        """An operator."""
        token = (self.member.state_dir / "operator.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, verify=self.trust, headers=headers, timeout=30)


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
