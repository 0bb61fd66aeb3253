"""Access to every route for every kind of caller, in one table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute

from api.access.auth import PAGE_HEADER, SESSION_COOKIE, Allowed, digest, public
from api.app import Services, create_app
from api.dashboard.pages import PAGES
from gavel.types import JobState, Lease, NodeStatus, Scope
from tests.api.access_matrix import BODIES, MATRIX, NO_DIGEST, PROGRAM
from tests.api.conftest import NOW_S, Service, wait_until
from tests.api.rounds import a_record
from tests.sessions import a_session


@dataclass
class Everybody:
    """ann owns the job of the matrix, bob is another user; `job` and `other` are tokens of her jobs."""

    anonymous: httpx.Client
    stranger: httpx.Client
    bob: httpx.Client
    ann: httpx.Client
    job: httpx.Client
    other: httpx.Client
    operator: httpx.Client
    job_id: str
    user: str
    operation: str

    def asking(self, method: str, path: str, **body: Any) -> dict[str, int]:
        path = path.format(job=self.job_id, user=self.user, operation=self.operation)
        names = ("anonymous", "stranger", "bob", "ann", "job", "other", "operator")
        return {name: status_of(getattr(self, name), method, path, **body) for name in names}


def status_of(client: httpx.Client, method: str, path: str, **body: Any) -> int:
    """Return the status, without reading the body, which may have no end."""
    with client.stream(method, path, **body) as answer:
        return answer.status_code


@pytest.fixture(scope="module")
def everybody(service: Service) -> Everybody:
    name, ann = service.user()
    job_id, other_id = (str(ann.post("/v1/jobs", json=PROGRAM).json()["id"]) for _ in range(2))
    service.change(round=a_record([], {job_id: [1.0, 0.0]}), nodes=(NodeStatus(name="node-0"),))
    command = service.store.add_command("node.cordon", subject="node/node-0", body={}, by=name, now_s=NOW_S)
    return Everybody(
        anonymous=service.client(),
        stranger=service.client("gavel_not-a-token"),
        bob=service.user()[1],
        ann=ann,
        job=service.client(service.token(name, Scope.JOB, job_id)),
        other=service.client(service.token(name, Scope.JOB, other_id)),
        operator=service.operator(),
        job_id=job_id,
        user=name,
        operation=command.id,
    )


@pytest.mark.full("POST /v1/what-if")
@pytest.mark.parametrize("route", MATRIX)
def test_a_route_answers_each_caller_as_it_should(everybody: Everybody, route: str) -> None:
    method, path = route.split()
    bob, ann, job, other, operator = MATRIX[route]
    body = {"json": BODIES[route]} if route in BODIES else {}
    assert everybody.asking(method, path, **body) == {
        "anonymous": 401,
        "stranger": 401,
        "bob": bob,
        "ann": ann,
        "job": job,
        "other": other,
        "operator": operator,
    }


def test_a_viewer_reads_what_a_user_may_read_and_the_metrics_and_changes_nothing(
    service: Service, everybody: Everybody
) -> None:
    viewer = service.client(service.token(service.user()[0], Scope.VIEWER))
    for route, (bob, *_) in MATRIX.items():
        method, path = route.split()
        path = path.format(job=everybody.job_id, user=everybody.user, operation=everybody.operation)
        expected = 200 if path == "/metrics" else bob if method == "GET" else 403
        body = {"json": BODIES[route]} if route in BODIES else {}
        assert status_of(viewer, method, path, **body) == expected, route


def test_a_node_s_token_takes_nodes_out_of_service_and_does_nothing_else(
    service: Service, everybody: Everybody
) -> None:
    name, _ = service.user()
    node = service.client(service.token(name, Scope.NODE))
    for route, (*_, operator) in MATRIX.items():
        method, path = route.split()
        path = path.format(job=everybody.job_id, user=everybody.user, operation=everybody.operation)
        expected = operator if path.startswith("/v1/nodes") else 404 if path.startswith("/v1/operations") else 403
        body = {"json": BODIES[route]} if route in BODIES else {}
        assert status_of(node, method, path, **body) == expected, route
    asked = node.post("/v1/nodes/node-0/cordon").json()
    assert node.get(f"/v1/operations/{asked['id']}").status_code == 200
    assert service.client().post("/login", data={"token": service.token(name, Scope.NODE)}).status_code == 401


def test_another_users_job_and_no_job_cannot_be_told_apart(everybody: Everybody) -> None:
    for path in ("", "/events", "/logs"):
        hidden = everybody.bob.get(f"/v1/jobs/{everybody.job_id}{path}")
        absent = everybody.bob.get(f"/v1/jobs/nosuchjob{path}")
        assert (hidden.status_code, absent.status_code) == (404, 404)
        assert hidden.text.replace(everybody.job_id, "X") == absent.text.replace("nosuchjob", "X")


def test_lists_and_matrices_hold_nothing_of_others(everybody: Everybody) -> None:
    for path in ("/v1/jobs", "/v1/allocations/current", "/v1/throughputs"):
        assert everybody.job_id not in everybody.bob.get(path).text
        assert everybody.user not in everybody.bob.get(path).text
    assert everybody.job_id in everybody.ann.get("/v1/allocations/current").text
    assert everybody.job_id in everybody.operator.get("/v1/jobs").text


@pytest.fixture(scope="module")
def leased(service: Service, everybody: Everybody) -> Everybody:
    """ann's job holds fast-0 and fast-1; a job of hers that has ended had held them one round before."""
    ended = service.store.job(str(everybody.ann.post("/v1/jobs", json=PROGRAM).json()["id"]))
    job = service.store.job(everybody.job_id)
    service.change(round=a_record([_lease(ended.id, 1)], {}, 2))
    service.change(
        replace(ended, state=JobState.COMPLETED, finished_at_s=NOW_S),
        replace(job, state=JobState.LEASED, generation=2),
        round=a_record([_lease(job.id, 2)], {job.id: [1.0, 0.0]}, 3),
    )
    return everybody


def _lease(job_id: str, generation: int) -> Lease:
    return Lease(
        job_id=job_id,
        generation=generation,
        combination=(job_id,),
        accelerator_type="fast",
        worker_ids=("fast-0", "fast-1"),
        round_index=3,
        expires_at_s=NOW_S + 10,
    )


def _holders(client: httpx.Client) -> list[tuple[str, str | None, str, tuple[str, ...]]]:
    """Return which job holds what, as each route answers: route, job, accelerator type, workers."""
    held_by: list[tuple[str, str | None, str, tuple[str, ...]]] = []
    rounds = {"rounds": client.get("/v1/rounds?limit=2").json()["items"], "round": [client.get("/v1/rounds/3").json()]}
    for route, items in rounds.items():
        leases = [lease for item in items for lease in item["leases"]]
        held_by += [(route, each["job_id"], each["accelerator_type"], tuple(each["worker_ids"])) for each in leases]
    blocks = client.get("/v1/placements?rounds=2").json()["blocks"]
    held_by += [("placements", each["job_id"], each["accelerator_type"], (each["worker_id"],)) for each in blocks]
    workers = [each for each in client.get("/v1/cluster").json()["workers"] if each["busy"]]
    held = [(each, job_id) for each in workers for job_id in each["job_ids"]]
    return held_by + [("cluster", job_id, each["accelerator_type"], (each["id"],)) for each, job_id in held]


@pytest.mark.parametrize("name", ["ann", "bob", "operator"])
def test_who_holds_what_has_names_for_its_owner_and_operators_only(leased: Everybody, name: str) -> None:
    whole = _holders(leased.operator)
    assert [route for route, *_ in whole] == ["rounds"] * 2 + ["round"] + ["placements"] * 4 + ["cluster"] * 2
    assert all(job_id for _, job_id, *_ in whole)
    nameless = [(route, None, kind, workers) for route, _, kind, workers in whole]
    assert _holders(getattr(leased, name)) == (nameless if name == "bob" else whole)


def test_a_job_s_token_knows_of_the_cluster_s_jobs_its_own_only(leased: Everybody) -> None:
    for client, expected in ((leased.job, leased.job_id), (leased.other, None)):
        workers = client.get("/v1/cluster").json()["workers"]
        assert [each["job_ids"] for each in workers if each["busy"]] == [[expected], [expected]]


def test_who_is_not_known_is_told_how_to_say_who_it_is(everybody: Everybody) -> None:
    answer = everybody.anonymous.get("/v1/jobs")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["type"] == "unauthenticated"


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "bearer x y", "Bearer \u00e9", "x" * 5000])
def test_headers_that_hold_no_token_are_nobodys(service: Service, header: str) -> None:
    answer = service.client().get("/v1/jobs", headers={"Authorization": header.encode()})
    assert answer.status_code == 401, answer.text


def test_a_session_changes_things_only_for_a_script_of_our_own_page(service: Service) -> None:
    name, _ = service.user()
    browser = service.client()
    browser.cookies.set(SESSION_COOKIE, a_session(service.store, service.token(name)))
    for headers in ({PAGE_HEADER: "dashboard"}, {PAGE_HEADER: "dashboard", "Origin": service.url}):
        assert browser.post("/v1/jobs", json=PROGRAM, headers=headers).status_code == 201
    asked = browser.options(
        "/v1/jobs", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert "access-control-allow-origin" not in asked.headers


def test_a_session_reads_and_changes_nothing(service: Service) -> None:
    name, _ = service.user()
    browser = service.client()
    browser.cookies.set(SESSION_COOKIE, a_session(service.store, service.token(name)))
    assert browser.get("/v1/jobs").status_code == 200
    assert browser.post("/v1/jobs", json=PROGRAM).status_code == 401
    from_elsewhere = {PAGE_HEADER: "dashboard", "Origin": "http://127.0.0.1:1"}
    assert browser.post("/v1/jobs", json=PROGRAM, headers=from_elsewhere).status_code == 401
    # A header takes precedence over a cookie, even with a wrong token.
    assert browser.get("/v1/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 401


def logged_in(service: Service, token: str) -> httpx.Client:
    browser = service.client()
    assert browser.post("/login", data={"token": token}).status_code == 303
    return browser


def test_login_gives_a_browser_a_session_that_scripts_cannot_read(service: Service) -> None:
    name, _ = service.user()
    token = service.token(name)
    answer = service.client().post("/login", data={"token": f" {token}\n"}, headers={"Origin": service.url})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert token not in cookie and "HttpOnly" in cookie and "SameSite=strict" in cookie and "Max-Age=604800" in cookie
    for wrong in ("wrong", "", service.token(name, Scope.JOB, "j1")):
        refused = service.client().post("/login", data={"token": wrong})
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)


def test_a_token_in_an_address_logs_nobody_in(service: Service) -> None:
    name, _ = service.user()
    answer = service.client().get("/login", params={"token": service.token(name)})
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)


def test_a_logout_ends_the_session_wherever_its_cookie_is(service: Service) -> None:
    name, _ = service.user()
    browser, other = (logged_in(service, service.token(name)) for _ in range(2))
    thief = service.client()
    thief.cookies.set(SESSION_COOKIE, browser.cookies[SESSION_COOKIE])
    assert [each.get("/v1/jobs").status_code for each in (browser, thief, other)] == [200, 200, 200]
    answer = browser.post("/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login") and not browser.cookies
    assert [each.get("/v1/jobs").status_code for each in (browser, thief, other)] == [401, 401, 200]
    assert browser.post("/logout").status_code == 303, "twice does no harm"


def test_a_session_ends_after_its_time_and_with_its_token(start: Callable[..., Service]) -> None:
    service = start(session_s=600)
    name, _ = service.user()
    tokens = [service.token(name) for _ in range(2)]
    browser, other = (logged_in(service, token) for token in tokens)
    revoked = service.operator().delete(f"/v1/users/{name}/tokens/{digest(tokens[1])[:16]}")
    assert revoked.status_code == 200
    assert [each.get("/v1/jobs").status_code for each in (browser, other)] == [200, 401]
    service.clock.advance(601)
    wait_until(lambda: [each.get("/v1/jobs").status_code for each in (browser, other)] == [401, 401])
    assert service.client(browser.cookies[SESSION_COOKIE]).get("/v1/jobs").status_code == 401, "an id is no token"


# --- every route declares who may call it -----------------------------------------------------------------------


# tests/api/test_ports.py, test_terminals.py, test_orders.py and test_tunnels.py are about who opens them
OF_USERS = {"/v1/jobs/{job_id}/ports/{port}", "/v1/jobs/{job_id}/terminal"}
WEBSOCKETS = OF_USERS | {"/v1/orders/{allocation}/{node}", "/v1/tunnels/{tunnel_id}"}


def routes(app: FastAPI) -> Iterator[APIRoute]:
    """Every route, those of included routers too; anything else could not be checked and fails."""
    for part in app.routes:
        for route in part.original_router.routes if hasattr(part, "original_router") else [part]:
            if isinstance(route, APIWebSocketRoute):
                assert route.path in WEBSOCKETS, f"who may open {route.path}?"
                continue
            assert isinstance(route, APIRoute), f"{route} cannot declare a scope"
            yield route


def scopes(route: APIRoute, router_is_public: bool = False) -> frozenset[Scope] | None:
    """The declared scopes; None: open to everybody. Fails when nothing is declared."""
    calls = [each.call for each in route.dependant.dependencies]
    declared = [call.scopes for call in calls if isinstance(call, Allowed)]
    assert len(declared) + (public in calls) == 1, f"{route.methods} {route.path} does not declare one scope: {calls}"
    return declared[0] if declared else None


def test_every_route_declares_a_scope_and_only_these_are_open(service: Service) -> None:
    app = create_app(
        Services(
            store=service.store,
            settings=service.settings,
            clock=service.clock,
            read_log=service.read_log,
            is_scheduler_alive=lambda: True,
        )
    )
    is_open = {route.path for route in routes(app) if scopes(route) is None}
    dashboard = {*PAGES, "/curves", "/jobs/{job_id}", "/login", "/logout", "/static/{name}", "/favicon.ico"}
    dashboard |= {"/setup", "/login/oidc", "/login/oidc/callback"}
    of_agents = {"/v1/orders/{allocation}/{node}/packs/{pack}"}
    assert is_open == {"/healthz", "/readyz", "/docs", "/openapi.json"} | dashboard | of_agents
    guarded = {f"{m} {route.path}" for route in routes(app) if scopes(route) is not None for m in route.methods}
    names = {"{job}": "{job_id}", "{user}": "{name}", "tiers/gold": "tiers/{name}", "rounds/1": "rounds/{index}"}
    names |= {"{operation}": "{operation_id}", "nodes/node-0": "nodes/{name}", "resources/lb": "resources/{name}"}
    names |= {"secrets/TOKEN": "secrets/{name}", "secrets/NONE": "secrets/{name}"}
    names |= {"tokens/0000000000000000": "tokens/{token_id}", NO_DIGEST: "{digest}"}
    names |= {"decisions/0": "decisions/{number}"}
    names |= {"infeasible-types/0000000000000000": "infeasible-types/{id}"}
    names |= {"checkpoints/1-1": "checkpoints/{checkpoint}"}
    tested = set(MATRIX)
    for short, name in names.items():
        tested = {route.replace(short, name) for route in tested}
    assert guarded == tested, "the matrix above must name every route"
