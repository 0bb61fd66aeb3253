"""The published description is valid, has examples, and is what the service does."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from api.app import PARTS
from api.schemas import JobSubmit
from gavel.autopilot.stored import pack
from gavel.config import OidcSettings
from gavel.types import InfeasibleType, JobState, NodeStatus, Operation, OperationState, Reason
from tests.api.conftest import NOW_S, Service, serve
from tests.api.rounds import a_record
from tests.api.test_operations import a_scheduler
from tests.autopilot.test_decision import a_question
from tests.autopilot_history import keep, three_decisions
from tests.client.test_worktree import git
from tests.git_server import git_server

EXAMPLES = 200 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 3
# What the schema cannot say: a tier that is not there, a version that is no longer current, a limit that is reached.
POSSIBLE = ["2xx", "304", "404", "409", "412", "422", "428", "429"]
REFUSED = ["400", "401", "403", "404", "405", "406", "409", "412", "413", "415", "422", "428", "429"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that can answer every route: with an OpenID provider, which is not asked."""
    oidc = OidcSettings(issuer_url="https://login.example.org", client_id="gavel")
    yield from serve(tmp_path_factory.mktemp("service"), public_url="https://gavel.example.org", oidc=oidc)


@pytest.fixture(scope="module")
def description(service: Service) -> dict[str, Any]:
    document: dict[str, Any] = service.client().get("/openapi.json").json()
    return document


def test_the_reasons_are_published_with_what_they_mean(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    assert schemas["Reason"]["enum"] == [each.value for each in Reason]
    text = schemas["JobView"]["properties"]["reason"]["description"]
    assert all(each.value in text and each.sentence in text for each in Reason)
    for view, field in (("QueueItem", "reason"), ("ExplanationView", "code")):
        assert "Reason" in str(schemas[view]["properties"][field])


@pytest.fixture(scope="module")
def caller(service: Service) -> httpx.Client:
    """An operator with a tier, who may call every route."""
    service.user()
    return service.operator()


POSSIBLE_BODY = {
    "argv": ["x"],
    "kind": None,
    "tier": "gold",
    "scale_factor": 1,
    "cpu_cores": 1,
    "memory_bytes": 0,
    "accelerator_types": [],
    "accelerator_memory_bytes": 0,
    "node_labels": {},
    "regions": [],
    "data_region": None,
    "data_bytes": 0,
    "throughputs": {},
    "env": {},
    "workdir": None,
    "code": None,
    "files": [],
    "python": None,
    "setup": None,
    "dump": None,
    "restore": None,
    "image": None,
    "secrets": [],
    "data": {},
    "value": "long enough",
    "email": None,
    "webhook_url": None,
    "notify": None,
    "tiers": ["gold"],
    "objective": "fairness",
    "policy": None,
    "guarantee": 0,
    "subject": "1",
    "parent": None,
    "after": [],
    "priority": None,
    "count": 2,
    "parameters": {},
    "job": {"argv": ["x"], "total_steps": 1},
    "jobs": [{"argv": ["x"], "total_steps": 1}],
}
LIVING = ("PATCH-/v1/jobs/{job_id}", "POST-/v1/jobs/{job_id}/pause", "POST-/v1/jobs/{job_id}/resume")

# An answer without end cannot be read to its end; tests/api/test_live.py has this one.
ENDLESS = {"watch"}
OPERATIONS = [
    (method, route.path)
    for part in PARTS
    for route in part.router.routes
    if isinstance(route, APIRoute) and route.include_in_schema and route.operation_id not in ENDLESS
    for method in sorted(route.methods)
]


@pytest.fixture(scope="module", autouse=True)
def scheduler(service: Service) -> Iterator[None]:
    """Ends each command at once, so that there are never too many."""

    def obey(command: Operation) -> Operation:
        return replace(command, state=OperationState.DONE, result={}, finished_at_s=NOW_S)

    with a_scheduler(service, obey):
        yield


@pytest.fixture(scope="module")
def schema(service: Service) -> Any:
    checks = {
        "positive_data_acceptance": {"expected-statuses": POSSIBLE},
        "negative_data_rejection": {"expected-statuses": REFUSED},
    }
    config = SchemathesisConfig.from_dict({"checks": checks})
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json", config=config)


@pytest.fixture(scope="module")
def identifiers(service: Service, caller: httpx.Client) -> dict[str, str | int]:
    """Path parameters of things that exist. The job has ended, so that following its log ends; another lives."""
    living = caller.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    serving = {"argv": ["x"], "mode": "service", "service": {"port": 0, "readiness": {}}}
    service_id = caller.post("/v1/jobs", json=serving).json()["id"]
    code = {"digest": caller.post("/v1/code-versions", json={"files": []}).json()["digest"]}
    job_id = caller.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1, "code": code}).json()["id"]
    caller.put("/v1/users/gold", json={"tiers": ["gold"]})
    caller.put("/v1/users/gold/link", json={"subject": "1"})
    caller.post("/v1/users/gold/tokens")
    token_id = caller.get("/v1/users/gold/tokens").json()["items"][0]["id"]
    job = replace(service.store.job(job_id), state=JobState.CANCELLED, finished_at_s=NOW_S)
    mark = InfeasibleType(
        user="ann", kind="mlp", scale_factor=1, accelerator_type="fast", evidence="e", job_id=job_id, at_s=NOW_S
    )
    service.change(job, round=a_record([], {}), nodes=(NodeStatus(name="gold"),), infeasible=(mark,))
    keep(service.store, *three_decisions(NOW_S), question=pack(a_question()))
    for folder in ("outputs", "checkpoints"):
        place = service.settings.state_dir / folder / job_id / "1-1"
        place.mkdir(parents=True)
        (place / "weights").write_text("w")
    command = service.store.add_command("node.cordon", subject="node/gold", body={}, by="operator", now_s=NOW_S)
    return {
        "job_id": job_id,
        "index": 1,
        "number": 1,
        "id": mark.id,
        "name": "gold",
        "operation_id": command.id,
        "living": living,
        "service_id": service_id,
        "token_id": token_id,
        "checkpoint": "1-1",
        "digest": caller.post("/v1/code-versions", json={"files": []}).json()["digest"],
    }


# What no field of HTTP may hold (RFC 9110, 5.5): the server's parser refuses it before there is a request.
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# A process of its own answers each: fewer cases.
WORKED_OUT = (
    "/v1/tiers/{name}/preview",
    "/v1/what-if",
    "/v1/rounds/{index}/verify",
    "/v1/autopilot/decisions/{number}/verify",
)


def check(operation: Any, mode: GenerationMode, caller: httpx.Client, **identifiers: str | int) -> Counter[int]:
    """Assert that status, media type and body are as described, and no 5xx; return what was answered."""
    answered: Counter[int] = Counter()

    @settings(
        max_examples=max(1, EXAMPLES // 10) if operation.path in WORKED_OUT else EXAMPLES,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers(case: Any) -> None:
        assume(not any(CONTROL.search(value) for value in (case.headers or {}).values()))
        case.path_parameters |= {name: value for name, value in identifiers.items() if name in case.path_parameters}
        if identifiers and isinstance(case.body, dict):
            case.body |= {name: value for name, value in POSSIBLE_BODY.items() if name in case.body}
            if operation.path == "/v1/jobs":
                case.body |= {"argv": ["x"]}  # one of argv and kind has to be there
            if operation.path == "/v1/jobs/array":
                case.body |= {"count": 2}  # one of count and parameters
        if identifiers and operation.path.endswith("/fetch"):
            case.body = {"git_url": str(identifiers["git_url"])}
        if identifiers and operation.path.endswith("/chunks"):
            case.body = b""  # no chunks at all: of random bytes none belong to a code version
        if identifiers and operation.path.endswith("/files/content"):
            case.query["path"] = "1-1/weights"
        answer = case.call_and_validate(headers={"Authorization": caller.headers["Authorization"]}, timeout=30)
        answered[answer.status_code] += 1

    answers()
    return answered


@pytest.fixture(scope="module")
def git_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A repository with one commit, served on this machine."""
    root = tmp_path_factory.mktemp("git")
    git(root, "init", "-q", "work")
    git(root / "work", "commit", "-q", "--allow-empty", "-m", "first")
    git(root, "clone", "-q", "--bare", "work", "repo.git")
    with git_server(root) as server:
        yield server.url("repo.git")


@pytest.mark.full("POST-/v1/autopilot/decisions/{number}/verify", "POST-/v1/rounds/{index}/verify", "POST-/v1/what-if")
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_the_description_allows_is_answered_as_described(
    method: str, path: str, schema: Any, caller: httpx.Client, identifiers: dict[str, str | int], git_url: str
) -> None:
    identifiers = identifiers | {"git_url": git_url}
    if f"{method}-{path}" in LIVING:
        identifiers = identifiers | {"job_id": identifiers["living"]}
    if "/endpoints" in path:
        identifiers = identifiers | {"job_id": identifiers["service_id"]}
    answered = check(schema[path][method], GenerationMode.POSITIVE, caller, **identifiers)
    assert set(answered) & {200, 201, 202, 304, 412, 428}, answered


@pytest.mark.parametrize(("method", "path"), [each for each in OPERATIONS if "{" in each[1] or each[0] != "GET"])
def test_what_the_description_forbids_is_refused_as_described(
    method: str, path: str, schema: Any, caller: httpx.Client
) -> None:
    check(schema[path][method], GenerationMode.NEGATIVE, caller)


def test_the_description_is_openapi_3_1_with_every_answer_described(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["description"], where
            assert operation["operationId"], where
            assert any(status.startswith("2") for status in operation["responses"]), where
            errors = [answer for status, answer in operation["responses"].items() if status >= "4"]
            assert all("application/problem+json" in answer["content"] for answer in errors), where


def test_every_reference_in_the_description_leads_somewhere(description: dict[str, Any]) -> None:
    names = set(
        re.findall(
            r'"\$ref": ?"#/components/schemas/([^"]+)"', httpx.Request("GET", "x:", json=description).content.decode()
        )
    )
    assert names <= set(description["components"]["schemas"])
    for schema in description["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema)


def test_the_examples_are_what_the_models_take(description: dict[str, Any]) -> None:
    for example in description["components"]["schemas"]["JobSubmit"]["examples"]:
        assert JobSubmit.model_validate(example)


def test_the_page_about_the_api_names_every_path_and_loads_nothing(
    service: Service, description: dict[str, Any]
) -> None:
    page = service.client().get("/docs")
    assert all(path in page.text for path in description["paths"])
    assert "<script" not in page.text
    for name in ("submit_job", "JobSubmit", "JobView"):
        assert f"href='#{name}'" in page.text and page.text.count(f"id='{name}'") == 1
    assert "default-src 'none'" in page.headers["content-security-policy"]
