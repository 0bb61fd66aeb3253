"""Submission: what is accepted, what is refused and with which message, and that one key creates one job."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from gavel.types import Cluster, Scope
from tests.api.conftest import Service, wait_until

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


def refused(answer: httpx.Response, field: str, *words: str) -> None:
    """A 422 problem that names the field and says what would be accepted."""
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "invalid-request"
    assert field in [each["field"] for each in problem["errors"]], problem
    for word in words:
        assert word in problem["detail"], problem


def test_a_submitted_job_is_answered_with_its_place_and_version(service: Service) -> None:
    name, ann = service.user("gold", "silver")
    answer = ann.post("/v1/jobs", json=PROGRAM | {"name": "first", "labels": {"project": "vision"}})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["etag"].startswith('W/"')
    assert (job["user"], job["tier"], job["name"], job["state"]) == (name, "gold", "first", "QUEUED")
    assert ann.get(answer.headers["location"]).json() == job


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [("application/json; charset=utf-8", "utf-8"), ("application/job+json", "utf-8"), ("application/json", "utf-16")],
)
def test_json_is_read_however_it_is_labelled_and_encoded(service: Service, content_type: str, encoding: str) -> None:
    _, ann = service.user()
    plain, other = "application/json", json.dumps(PROGRAM).encode(encoding)
    first, again = (
        ann.post("/v1/jobs", content=body, headers={"Content-Type": kind, "Idempotency-Key": "k"})
        for kind, body in ((plain, json.dumps(PROGRAM).encode()), (content_type, other))
    )
    assert first.json()["id"] == again.json()["id"], again.text
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("headers", [{"Content-Type": "text/plain"}, {}])
def test_a_body_that_is_not_said_to_be_json_is_refused(service: Service, headers: dict[str, str]) -> None:
    _, ann = service.user()
    assert ann.post("/v1/jobs", content=json.dumps(PROGRAM).encode(), headers=headers).status_code == 422


def test_all_that_is_wrong_with_a_submit_is_said_at_once(service: Service) -> None:
    _, ann = service.user()
    answer = ann.post("/v1/jobs", json=PROGRAM | {"weight": 0}, headers={"Idempotency-Key": "k" * 129})
    refused(answer, "body.weight")
    refused(answer, "header.Idempotency-Key")


def test_a_body_that_breaks_off_is_no_fault_of_the_service(service: Service) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    token = service.token("operator", Scope.OPERATOR)
    with socket.create_connection((host, int(port))) as client:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
    operator = service.operator()
    counted = 'gavel_http_requests_total{method="POST",route="/v1/jobs",status="400"} 1.0'
    wait_until(lambda: counted in operator.get("/metrics").text)


def test_without_kind_or_name_the_kind_is_a_digest_of_the_program(service: Service) -> None:
    name, ann = service.user()
    kinds = [ann.post("/v1/jobs", json=PROGRAM | {"argv": argv}).json()["kind"] for argv in (["a"], ["a"], ["b"])]
    assert kinds[0] == kinds[1] != kinds[2]
    assert kinds[0].startswith(f"{name}/")


def test_a_catalogue_kind_brings_its_program(service: Service) -> None:
    _, ann = service.user()
    entry = ann.get("/v1/catalogue").json()["items"][0]
    job = ann.post("/v1/jobs", json={"kind": entry["name"], "total_steps": 5}).json()
    assert (job["kind"], job["argv"]) == (entry["name"], entry["argv"])


def test_the_user_is_the_tokens_and_never_the_bodys(service: Service) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=PROGRAM | {"user": "bob"}), "body.user")


def test_text_of_any_script_arrives_unchanged(service: Service) -> None:
    _, ann = service.user()
    argv = ["echo", "; rm -rf /", "$(id)", "naïve 日本語 \U0001f600", "\n\t\x1b[31m", ""]
    assert ann.post("/v1/jobs", json=PROGRAM | {"argv": argv}).json()["argv"] == argv


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"total_steps": 0}, "body.total_steps", "greater than or equal to 1"),
    ({"total_steps": -5}, "body.total_steps", "greater than or equal to 1"),
    ({"total_steps": 10**12 + 1}, "body.total_steps", "less than or equal to"),
    ({"total_steps": "many"}, "body.total_steps", "valid integer"),
    ({"total_steps": True}, "body.total_steps", "valid integer"),
    ({"argv": []}, "body.argv", "at least 1 item"),
    ({"dump": "./save"}, "restore", "dump needs it"),
    ({"restore": "./load"}, "dump", "restore needs it"),
    ({"dump": "./save", "restore": "./load"}, "total_steps", "leave it out with dump and restore"),
    ({"argv": ["x"] * 257}, "body.argv", "at most 256 items"),
    ({"argv": ["x" * 4097]}, "body.argv.0", "at most 4096"),
    ({"argv": ["nul\x00byte"]}, "body.argv.0", "match pattern"),
    ({"argv": "python train.py"}, "body.argv", "valid list"),
    ({"argv": None}, "body", "give argv"),
    ({"argv": None, "kind": "no-such-kind"}, "kind", "mlp"),
    ({"kind": "no-such-kind"}, "kind", "is spelled"),
    ({"kind": "somebody/else"}, "kind", "is spelled"),
    ({"kind": "Bad Kind"}, "body.kind", "match pattern"),
    ({"name": "Bad Name"}, "body.name", "match pattern"),
    ({"tier": "platinum"}, "tier", "gold, silver"),
    ({"tier": "default"}, "tier", "gold, silver"),
    ({"scale_factor": 0}, "body.scale_factor", "greater than or equal to 1"),
    ({"scale_factor": 1025}, "body.scale_factor", "less than or equal to 1024"),
    ({"scale_factor": 5}, "scale_factor", "at most 4"),
    ({"weight": 0}, "body.weight", "greater than or equal to 0.001"),
    ({"weight": 1001}, "body.weight", "less than or equal to 1000"),
    ({"weight": 5e-324}, "body.weight", "greater than or equal to 0.001"),
    ({"deadline_at_s": -1}, "body.deadline_at_s", "greater than or equal to 0"),
    ({"env": {"a-b": "x"}}, "body.env.a-b.[key]", "match pattern"),
    ({"env": {"RANK": "1"}}, "env.RANK", "differs from rank to rank"),
    ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, "env.CUDA_VISIBLE_DEVICES", "accelerator type"),
    ({"workdir": "src"}, "body.workdir", "match pattern"),
    ({"python": "python3"}, "body.python", "match pattern"),
    ({"env": {"GAVEL_TOKEN": "x"}}, "env.GAVEL_TOKEN", "choose another"),
    ({"env": {f"V{i}": "x" for i in range(129)}}, "body.env", "at most 128"),
    ({"labels": {"a b": "x"}}, "body.labels.a b.[key]", "match pattern"),
    ({"throughputs": {"fast": 0}}, "body.throughputs.fast", "greater than"),
    ({"throughputs": {"fast": -1}}, "body.throughputs.fast", "greater than"),
    ({"throughputs": {"fast": 1e9}}, "body.throughputs.fast", "less than"),
    ({"throughputs": {"v100": 3.0}}, "throughputs.v100", "fast (2), slow (4)"),
    ({"throughputs": {"fast": 3.0}, "scale_factor": 3}, "throughputs", "fast (2), slow (4)"),
    ({"cpu_cores": 0}, "body.cpu_cores", "greater than or equal to 1"),
    ({"memory_bytes": -1}, "body.memory_bytes", "greater than or equal to 0"),
    ({"colour": "red"}, "body.colour", "not permitted"),
]


@pytest.mark.parametrize(("over", "field", "words"), BAD, ids=lambda each: json.dumps(each)[:40])
def test_a_bad_submit_names_the_field_and_the_fix(
    service: Service, over: dict[str, Any], field: str, words: str
) -> None:
    _, ann = service.user("gold", "silver")
    refused(ann.post("/v1/jobs", json=PROGRAM | over), field, words)
    assert ann.get("/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("place", ["weight", "deadline_at_s", "throughputs"])
def test_numbers_that_are_none_are_refused(service: Service, place: str, number: str) -> None:
    _, ann = service.user()
    value = f'{{"fast": {number}}}' if place == "throughputs" else number
    body = f'{{"argv": ["x"], "total_steps": 5, "{place}": {value}}}'
    answer = ann.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    refused(answer, "body.throughputs.fast" if place == "throughputs" else f"body.{place}", "finite")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"argv": ["\\ud800"], "total_steps": 1}'])
def test_bodies_that_are_no_job_are_refused(service: Service, body: bytes) -> None:
    _, ann = service.user()
    answer = ann.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_catalogue_kind_with_another_program_is_refused(service: Service) -> None:
    _, ann = service.user()
    kind = ann.get("/v1/catalogue").json()["items"][0]["name"]
    refused(ann.post("/v1/jobs", json=PROGRAM | {"kind": kind}), "argv", "brings its own program")


def test_a_user_without_tiers_is_told_who_can_help(service: Service) -> None:
    stranger = service.client(service.token("stranger"))
    refused(stranger.post("/v1/jobs", json=PROGRAM), "tier", "PUT /v1/users/stranger")


def test_what_was_sent_is_not_echoed(service: Service) -> None:
    _, ann = service.user()
    secret = "canary-4711"
    answer = ann.post("/v1/jobs", json=PROGRAM | {"env": {"PASSWORD": secret, "bad name": secret}, "weight": secret})
    assert answer.status_code == 422
    assert secret not in answer.text


def test_env_values_are_never_shown(service: Service) -> None:
    _, ann = service.user()
    answer = ann.post("/v1/jobs", json=PROGRAM | {"env": {"PASSWORD": "canary-4711"}})
    assert answer.status_code == 201
    assert "canary-4711" not in answer.text + ann.get("/v1/jobs").text


# --- idempotency ------------------------------------------------------------------------------------------------


def test_the_same_key_and_body_is_the_same_job(service: Service) -> None:
    _, ann = service.user()
    first = ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k1"})
    again = ann.post(
        "/v1/jobs",
        content=json.dumps(PROGRAM, indent=3),
        headers={"Idempotency-Key": "k1", "Content-Type": "application/json"},
    )
    assert (first.status_code, again.status_code) == (201, 201)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert len(ann.get("/v1/jobs").json()["items"]) == 1


def test_the_same_key_with_another_body_is_refused(service: Service) -> None:
    _, ann = service.user()
    ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k1"})
    answer = ann.post("/v1/jobs", json=PROGRAM | {"weight": 2.0}, headers={"Idempotency-Key": "k1"})
    refused(answer, "Idempotency-Key", "new key")
    assert len(ann.get("/v1/jobs").json()["items"]) == 1


def test_keys_of_two_users_do_not_meet(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    ids = {each.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"}).json()["id"] for each in (ann, bob)}
    assert len(ids) == 2


def test_eight_submits_at_once_with_one_key_are_one_job(service: Service) -> None:
    name, _ = service.user()
    clients = [service.client(service.token(name)) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda each: each.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"}), clients)
        )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1


@pytest.mark.parametrize("key", ["", "two words", "x" * 129])
def test_keys_that_are_no_keys_are_refused(service: Service, key: str) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": key}), "header.Idempotency-Key")


# --- limits -----------------------------------------------------------------------------------------------------


def test_before_the_first_look_at_the_cluster_submits_are_put_off(start: Callable[..., Service]) -> None:
    _, ann = start(cluster=Cluster()).user()
    answer = ann.post("/v1/jobs", json=PROGRAM)
    assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


def test_unfinished_jobs_of_one_user_have_a_limit(start: Callable[..., Service]) -> None:
    service = start(unfinished_jobs_per_user=2)
    (_, ann), (_, bob) = service.user(), service.user()
    ids = [ann.post("/v1/jobs", json=PROGRAM).json()["id"] for _ in range(2)]
    full = ann.post("/v1/jobs", json=PROGRAM)
    assert (full.status_code, full.json()["type"]) == (429, "limit-reached")
    assert "retry-after" in full.headers
    assert bob.post("/v1/jobs", json=PROGRAM).status_code == 201
    assert ann.get(f"/v1/jobs/{ids[0]}").status_code == 200


@pytest.mark.parametrize(("size", "status"), [(2048, 201), (2049, 413)])
def test_bodies_up_to_the_limit_are_read(start: Callable[..., Service], size: int, status: int) -> None:
    _, ann = start(body_bytes=2048).user()
    body = json.dumps(PROGRAM).encode()
    answer = ann.post("/v1/jobs", content=body.ljust(size), headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    if status == 413:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "body-too-large"


def test_a_body_of_unstated_length_is_cut_off_at_the_limit(start: Callable[..., Service]) -> None:
    _, ann = start(body_bytes=2048).user()
    answer = ann.post("/v1/jobs", content=(b" " * 512 for _ in range(64)), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
