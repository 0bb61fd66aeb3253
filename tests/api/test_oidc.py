"""Logging in at a real OpenID provider, a process of its own: who gets a session, and who gets a sentence."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from api.access.auth import SESSION_COOKIE, digest
from api.access.oidc import CALLBACK_PATH, Attempt
from api.dashboard.oidc import ATTEMPT_COOKIE
from gavel.config import OidcSettings, Settings
from gavel.types import Scope
from tests.api.conftest import NOW_S, Service, serve
from tests.oidc_provider import Running, running, settings_of

GROUPS = {
    "tiers": {"research": ["gold"], "everything": ["silver", "gold"], "lost": ["no-such-tier"]},
    "operator_groups": ["admins"],
    "viewer_groups": ["auditors"],
}
PUBLIC_URL = "http://gavel.example.org"


@dataclass
class World:
    """A service, and the provider that it trusts."""

    service: Service
    provider: Running

    def browser(self) -> httpx.Client:
        return self.service.client()

    def leave(self, browser: httpx.Client) -> str:
        """Press the button of the login page; return where it leads."""
        answer = browser.get("/login/oidc")
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def come_back(self, browser: httpx.Client) -> httpx.Response:
        """Leave, sign in at the provider, and come back."""
        with httpx.Client() as there:
            back = self.provider.sign_in(there, self.leave(browser))
        return self.follow(browser, back)

    def follow(self, browser: httpx.Client, back: str) -> httpx.Response:
        assert back.startswith(PUBLIC_URL + CALLBACK_PATH)
        return browser.get(back.removeprefix(PUBLIC_URL))

    def holder(self, browser: httpx.Client) -> Any:
        session = browser.cookies.get(SESSION_COOKIE)
        return self.service.store.session_holder(digest(session), NOW_S) if session else None

    def log_in(self, subject: str, name: str, *groups: str, **claims: Any) -> Any:
        """Log this person in with a new browser; return who that is here."""
        self.provider.of(subject, name, *groups, **claims)
        browser = self.browser()
        answer = self.come_back(browser)
        assert answer.status_code == 200, answer.text
        return self.holder(browser)

    def refusal(self) -> tuple[int, str]:
        """Try to log in; return status and text of the page, which began no session."""
        browser = self.browser()
        answer = self.come_back(browser)
        assert self.holder(browser) is None
        return answer.status_code, answer.text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running() as provider:
        provider.tell(redirect_url=PUBLIC_URL + CALLBACK_PATH)
        oidc = OidcSettings(**settings_of(provider.url, **GROUPS))
        for service in serve(tmp_path_factory.mktemp("oidc"), public_url=PUBLIC_URL, oidc=oidc):
            yield World(service, provider)


def test_groups_at_the_provider_say_what_a_person_may_do(world: World) -> None:
    """Whoever has tiers is a user; the first tier is that of the first group in the settings."""
    held = {
        name: world.log_in(name, name, *groups)
        for name, groups in {
            "ann": ("research", "other"),
            "bob": ("everything", "research"),
            "root-admin": ("admins",),
            "both": ("research", "admins"),
            "reader": ("auditors",),
        }.items()
    }
    assert {name: (each.scope, each.tiers) for name, each in held.items()} == {
        "ann": (Scope.USER, ("gold",)),
        "bob": (Scope.USER, ("gold", "silver")),
        "root-admin": (Scope.OPERATOR, ("default",)),
        "both": (Scope.OPERATOR, ("gold",)),
        "reader": (Scope.VIEWER, ("default",)),
    }


def test_a_person_is_the_same_user_under_another_name_and_with_other_groups(world: World) -> None:
    first = world.log_in("7", "Cleo.Lee@example.org", "research")
    assert first.user == "cleo-lee"
    again = world.log_in("7", "cleo-married", "everything")
    assert (again.user, again.tiers) == ("cleo-lee", ("silver", "gold"))


@pytest.mark.parametrize("name", ["operator", "local", "LOCAL@elsewhere.org"])
def test_a_name_at_the_provider_opens_no_account_that_is_here(world: World, name: str) -> None:
    """The page names the command by which an operator links the person, and that works."""
    operator, local = world.service.operator(), name.partition("@")[0].lower()
    operator.put(f"/v1/users/{local}", json={"tiers": ["gold"]})
    world.provider.of("subject-of-eve", name, "research")
    status, page = world.refusal()
    assert status == 403 and f"gavel user link {local} subject-of-eve" in page
    assert operator.get(f"/v1/users/{local}/link").status_code == 404


def test_an_operator_links_a_person_with_a_user_and_undoes_it(world: World) -> None:
    operator = world.service.operator()
    operator.put("/v1/users/dora", json={"tiers": ["silver"]})
    linked = operator.put("/v1/users/dora/link", json={"subject": "33"}).json()
    assert linked == {"user": "dora", "issuer": world.provider.url, "subject": "33"}
    world.provider.of("33", "whatever", "research")
    browser = world.browser()
    world.come_back(browser)
    assert world.holder(browser).user == "dora" and browser.get("/v1/jobs").status_code == 200
    assert operator.put("/v1/users/cleo-lee/link", json={"subject": "33"}).status_code in (404, 409)
    assert operator.delete("/v1/users/dora/link").json() == {"name": "dora", "tiers": ["gold"]}
    assert browser.get("/v1/jobs").status_code == 401
    assert operator.delete("/v1/users/dora/link").status_code == 404


def test_a_logout_ends_the_session_of_the_service(world: World) -> None:
    world.provider.of("44", "fay", "research")
    browser = world.browser()
    page = world.come_back(browser)
    assert "You are logged in as <b>fay</b>" in page.text and "; samesite=strict" in page.headers["set-cookie"].lower()
    session = browser.cookies[SESSION_COOKIE]
    assert browser.post("/logout").status_code == 303
    assert world.service.store.session_holder(digest(session), NOW_S) is None


@pytest.mark.parametrize(
    ("name", "groups", "sentence"),
    [
        ("gil", [], "You are no member of this service"),
        ("gil", ["*", "other"], "You are no member of this service"),
        ("gil", ["lost"], "a tier that is not here"),
        ("@example.org", ["research"], "gives no name that could be yours"),
        ("---", ["research"], "gives no name that could be yours"),
    ],
)
def test_whoever_is_no_member_gets_a_sentence(world: World, name: str, groups: list[str], sentence: str) -> None:
    world.provider.of("55", name, *groups)
    status, page = world.refusal()
    assert status == 403 and sentence in page
    assert "gil" not in [user.name for user in world.service.store.users()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "of another attempt"},
        {"nonce": ""},
        {"exp": int(time.time()) - 120},
        {"exp": None},
        {"iat": int(time.time()) + 600},
        {"aud": "another-client"},
        {"aud": ["another-client", "third"], "azp": "gavel"},
        {"aud": ["another-client", "gavel"]},
        {"iss": "https://elsewhere.example.org"},
        {"sub": None},
        {"at_hash": "AAAA"},
    ],
    ids=",".join,
)
def test_an_id_token_that_is_not_for_this_login_opens_nothing(world: World, wrong: dict[str, Any]) -> None:
    world.provider.of("66", "hal", "admins", **wrong)
    status, page = world.refusal()
    assert status == 403 and "cannot be trusted" in page


def test_claims_that_the_id_token_lacks_are_asked_for(world: World) -> None:
    """And count only if they are of the same person."""
    world.provider.tell(claims={"sub": "77"}, userinfo={"preferred_username": "ida", "groups": "research"})
    browser = world.browser()
    assert world.come_back(browser).status_code == 200 and world.holder(browser).user == "ida"
    world.provider.tell(userinfo={"sub": "1", "preferred_username": "ida", "groups": ["admins"]})
    assert world.refusal()[0] == 403


def test_a_provider_that_replaces_its_key_is_believed_and_its_old_key_is_not(world: World) -> None:
    assert world.log_in("88", "jo", "research").user == "jo"
    world.provider.tell(new_key=True)
    assert world.log_in("88", "jo", "research").user == "jo"


def test_only_the_browser_that_began_an_attempt_ends_it_and_only_once(world: World) -> None:
    world.provider.of("99", "kim", "research")
    begun, other = world.browser(), world.browser()
    with httpx.Client() as there:
        back = world.provider.sign_in(there, world.leave(begun))
    world.leave(other)
    for browser in (other, world.browser()):
        answer = world.follow(browser, back)
        assert answer.status_code == 400 and "begun in another window" in answer.text
        assert world.holder(browser) is None
    assert world.follow(begun, back).status_code == 200
    assert world.follow(begun, back).status_code == 400


def test_a_code_without_its_proof_and_a_refusal_of_the_provider_open_nothing(world: World) -> None:
    """1. A stolen code, in the thief's own attempt. 2. The person said no. 3. An answer of another issuer."""
    world.provider.of("10", "lea", "research")
    victim, thief = world.browser(), world.browser()
    with httpx.Client() as there:
        code = httpx.URL(world.provider.sign_in(there, world.leave(victim))).params["code"]
    for stolen in ({"code": code}, {"error": "access_denied"}, {"code": code, "iss": "https://elsewhere.example.org"}):
        state = httpx.URL(world.leave(thief)).params["state"]
        answer = thief.get(CALLBACK_PATH, params={"state": state, **stolen})
        assert answer.status_code == 403 and "did not log you in" in answer.text and world.holder(thief) is None


def test_the_login_page_offers_the_provider_only_where_there_is_one(world: World, service: Service) -> None:
    assert "Log in with single sign-on" in world.browser().get("/login").text
    assert "/login/oidc" not in service.client().get("/login").text
    assert service.client().get("/login/oidc").status_code == 404


def test_a_provider_that_does_not_answer_is_a_page_that_says_so(tmp_path: Path) -> None:
    """On the way there and on the way back; tokens work meanwhile."""
    oidc = OidcSettings(**settings_of("http://127.0.0.1:9", **GROUPS))
    attempt = Attempt.new()
    for service in serve(tmp_path, public_url=PUBLIC_URL, oidc=oidc):
        browser = service.client()
        browser.cookies.set(ATTEMPT_COOKIE, attempt.cookie(), path="/login")
        for path in ("/login/oidc", f"{CALLBACK_PATH}?code=1&state={attempt.state}"):
            answer = browser.get(path)
            assert answer.status_code == 503 and "does not answer as it should" in answer.text
        name, _ = service.user()
        assert browser.post("/login", data={"token": service.token(name)}).status_code == 303


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"issuer_url": "http://login.example.org"}, "issuer_url"),
        ({"client_secret_file": "/etc/secret"}, "choose one"),
        ({"scopes": "profile email"}, "scopes"),
        ({"client_idd": "x"}, "client_idd"),
    ],
)
def test_settings_that_would_let_nobody_or_anybody_in_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OidcSettings(**{**settings_of("https://login.example.org"), **wrong})


def test_the_provider_must_know_where_to_send_browsers_and_a_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    without = {**settings_of("https://login.example.org"), "client_secret": ""}
    oidc = OidcSettings(**without, client_secret_file=tmp_path / "secret")
    assert oidc.secret() == "from a file" and "file" not in repr(OidcSettings(**settings_of("https://a")).client_secret)
    with pytest.raises(ValidationError, match="needs public_url"):
        Settings(oidc=oidc)
    assert Settings(oidc=oidc, public_url=PUBLIC_URL).oidc == oidc
