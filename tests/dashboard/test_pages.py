"""What the dashboard's routes answer, without a browser."""

import hashlib
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from api.access.auth import SESSION_COOKIE, digest, new_token
from api.dashboard.pages import FILES, HERE, PAGES
from gavel.types import Scope
from tests.dashboard.conftest import Dashboard
from tests.sessions import a_session

OWN = {name: path for name, path in FILES.items() if path.parent.name != "vendor"}
UPLOT = (
    "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"  # dist/uPlot.iife.min.js of uplot 1.6.32 on npm
)


@pytest.fixture
def visitor(dashboard: Dashboard) -> Iterator[httpx.Client]:
    """Somebody without a session."""
    with httpx.Client(base_url=dashboard.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def operator(dashboard: Dashboard) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=dashboard.url, trust_env=False, timeout=60, cookies={SESSION_COOKIE: dashboard.session}
    ) as client:
        yield client


def test_without_a_session_a_page_explains_how_to_log_in(visitor: httpx.Client) -> None:
    for path in (*PAGES, "/curves", "/jobs/j1"):
        answer = visitor.get(path)
        assert answer.status_code == 401, path
        assert "Log in" in answer.text and "gavel token create" in answer.text
        assert "overview.js" not in answer.text


def test_a_login_sets_a_strict_cookie_and_leaves_the_token_behind(visitor: httpx.Client, dashboard: Dashboard) -> None:
    answer = visitor.post("/login", data={"token": f" {dashboard.token}\n"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"{SESSION_COOKIE}=") and dashboard.token not in cookie
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    page = visitor.get("/")
    assert page.status_code == 200 and dashboard.token not in page.text


def test_an_unknown_token_is_refused_and_not_echoed(visitor: httpx.Client) -> None:
    answer = visitor.post("/login", data={"token": '"><script>x</script>'})
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers
    assert "does not know this token" in answer.text and "<script>x" not in answer.text


def test_a_job_s_own_token_does_not_open_the_dashboard(visitor: httpx.Client, dashboard: Dashboard) -> None:
    token = new_token()
    dashboard.store.add_token(digest(token), user="ann", scope=Scope.JOB, job_id="j1", now_s=time.time())
    assert visitor.post("/login", data={"token": token}).status_code == 401


def test_pages_allow_scripts_and_styles_from_files_only(operator: httpx.Client) -> None:
    for path in (*PAGES, "/curves", "/jobs/j1", "/login"):
        answer = operator.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and answer.headers["Cache-Control"] == "no-store"
        inline = r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|https?://(?!127\.0\.0\.1)"
        assert re.findall(inline, answer.text) == [], path


def test_a_job_s_id_is_text_on_its_page(operator: httpx.Client) -> None:
    text = operator.get("/jobs/%22%3E%3Cscript%3Ex%3C%2Fscript%3E").text
    assert "<script>x" not in text


def test_every_file_of_the_dashboard_is_served_and_nothing_else(visitor: httpx.Client) -> None:
    assert {"overview.js", "job.js", "style.css", "icon.svg"} <= set(FILES)
    for name, path in FILES.items():
        answer = visitor.get(f"/static/{name}")
        assert answer.content == path.read_bytes() and answer.headers["X-Content-Type-Options"] == "nosniff"
    for name in ("pages.py", "..%2Fpages.py", "%2e%2e/pages.py", "templates"):
        assert visitor.get(f"/static/{name}").status_code == 404
    assert visitor.get("/favicon.ico").headers["Content-Type"].startswith("image/svg+xml")


def test_no_file_of_the_dashboard_needs_the_internet() -> None:
    for path in [*OWN.values(), *(HERE / "templates").rglob("*.html")]:
        outside = re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", path.read_text())
        assert outside == [], path.name


def test_scripts_never_turn_text_into_markup() -> None:
    scripts = "".join(path.read_text() for path in OWN.values() if path.suffix == ".js")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", scripts) == []


def test_the_plotting_library_is_the_published_one_with_its_licence() -> None:
    assert hashlib.sha256(FILES["uPlot-1.6.32.min.js"].read_bytes()).hexdigest() == UPLOT
    assert "The MIT License" in FILES["uPlot-LICENSE.txt"].read_text()


def test_an_operator_s_controls_are_not_on_a_user_s_page(visitor: httpx.Client, dashboard: Dashboard) -> None:
    token = new_token()
    dashboard.store.add_token(digest(token), user="ann", scope=Scope.USER, now_s=time.time())
    visitor.cookies.set(SESSION_COOKIE, a_session(dashboard.store, token))
    for path in ("/tiers", "/policy"):
        text = visitor.get(path).text
        assert 'data-scope="user"' in text and "tier-editor" not in text and "switch-form" not in text


def test_a_page_names_itself_in_the_navigation(operator: httpx.Client) -> None:
    for path, name in PAGES.items():
        text = operator.get(path).text
        assert f'<a href="{path}" aria-current="page">{name}</a>' in text and text.count("aria-current") == 1
        assert f"<title>{name} · Gavel</title>" in text


def test_a_page_asks_at_once_for_every_script_that_it_needs(operator: httpx.Client) -> None:
    for path in (*PAGES, "/curves", "/jobs/j1"):
        text = operator.get(path).text
        asked = set(re.findall(r'/static/([a-z]+\.js)"', text))
        for name in asked:
            assert set(re.findall(r'from "\./([a-z]+\.js)"', FILES[name].read_text())) <= asked, (path, name)


def test_every_file_of_the_dashboard_is_short() -> None:
    for path in [*OWN.values(), *(HERE / "templates").rglob("*.html")]:
        assert len(path.read_text().splitlines()) <= 400, path.name
