"""Behind a proxy, under TLS, and under other names: which pages are ours, and which hosts are answered."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from api.access.auth import PAGE_HEADER, SESSION_COOKIE
from gavel.config import Settings
from tests.api.conftest import Service, serve
from tests.api.test_access import logged_in
from tests.e2e.processes import Member
from tests.sessions import a_session

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    names = {"public_url": "https://gavel.example.org", "allowed_hosts": "*.lan other.example.org"}
    yield from serve(tmp_path_factory.mktemp("proxied"), **names)


def test_the_public_address_is_an_origin_of_ours_though_a_proxy_rewrites_the_host(proxied: Service) -> None:
    name, _ = proxied.user()
    browser = proxied.client()
    browser.cookies.set(SESSION_COOKIE, a_session(proxied.store, proxied.token(name)))
    statuses = {
        origin: browser.post("/v1/jobs", json=PROGRAM, headers={PAGE_HEADER: "dashboard", "Origin": origin}).status_code
        for origin in (
            "https://gavel.example.org",
            "http://gavel.example.org",
            "https://gavel.example.org:444",
            "https://evil.example.org",
            "https://gavel.example.org.evil.org",
            "null",
        )
    }
    assert [origin for origin, status in statuses.items() if status == 201] == ["https://gavel.example.org"]


@pytest.mark.parametrize("host", ["gavel.example.org", "n1.lan", "OTHER.example.org:8080", "127.0.0.1", "[::1]:80"])
def test_names_of_the_service_are_answered(proxied: Service, host: str) -> None:
    assert proxied.client().get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.org", "lan", "xlan", "gavel.example.org.evil.org", "", "[", "[[", "a b", "x:y:z"]
)
def test_other_names_are_not(proxied: Service, host: str) -> None:
    answer = proxied.client().get("/healthz", headers={"Host": host})
    assert answer.status_code == 400 and b"evil" not in answer.content


def test_any_name_is_answered_where_none_is_set_and_the_login_page_repeats_none(service: Service) -> None:
    page = service.client().get("/login", headers={"Host": "x$(reboot).example"})
    assert page.status_code == 200 and "reboot" not in page.text


def test_a_cookie_is_for_https_only_where_browsers_come_by_https(proxied: Service, service: Service) -> None:
    for each, is_secure in ((proxied, True), (service, False)):
        name, _ = each.user()
        answer = each.client().post("/login", data={"token": each.token(name)})
        assert ("; secure" in answer.headers["set-cookie"].lower()) is is_secure


def test_a_page_of_another_site_logs_nobody_in_or_out(service: Service) -> None:
    name, _ = service.user()
    token = service.token(name)
    browser, elsewhere = logged_in(service, token), {"Origin": "https://evil.example"}
    assert browser.post("/login", data={"token": token}, headers=elsewhere).status_code == 403
    assert browser.post("/logout", headers=elsewhere).status_code == 403
    assert browser.get("/v1/jobs").status_code == 200


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="belong together"):
        Settings(tls_cert_file=tmp_path / "cert.pem")


@pytest.mark.skipif(not IS_FULL, reason="a whole service: only with GAVEL_TEST_PROFILE=full")
def test_the_service_speaks_tls_with_the_certificate_that_it_is_given(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *names], check=True, capture_output=True)
    trusted = {"SSL_CERT_FILE": str(cert)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(cert))
        with Member(tmp_path / "state", trusted, "--tls-cert", str(cert), "--tls-key", str(key)) as member:
            assert member.url.startswith("https://127.0.0.1:")
            token = (member.state_dir / "operator.token").read_text().strip()
            context = ssl.create_default_context(cafile=str(cert))
            with httpx.Client(base_url=member.url, verify=context) as client:
                cookie = client.post("/login", data={"token": token}).headers["set-cookie"]
            assert "; secure" in cookie.lower()
            with member.client() as client:
                assert client.submit(argv=["true"], total_steps=1)["state"]
