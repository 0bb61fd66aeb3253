"""Secrets over REST: names are shown, values never; a job asks for those of its own user."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.conftest import Service

JOB: dict[str, Any] = {"argv": ["x"], "total_steps": 1}
VALUE = "s3cret-value-of-ann"


@pytest.fixture
def ann(service: Service) -> httpx.Client:
    return service.user()[1]


def test_a_secret_is_stored_listed_and_deleted_and_never_shown(ann: httpx.Client) -> None:
    stored = ann.put("/v1/secrets/TOKEN", json={"value": VALUE})
    assert stored.status_code == 200 and stored.json()["name"] == "TOKEN"
    job = ann.post("/v1/jobs", json={**JOB, "secrets": ["TOKEN", "TOKEN"]})
    assert job.status_code == 201 and job.json()["secrets"] == ["TOKEN"]
    listed = ann.get("/v1/secrets")
    assert [each["name"] for each in listed.json()["items"]] == ["TOKEN"]
    left = ann.delete("/v1/secrets/TOKEN")
    assert left.json()["items"] == []
    assert ann.delete("/v1/secrets/TOKEN").status_code == 404
    assert all(VALUE not in answer.text for answer in (stored, job, listed, left))


def test_a_secret_that_is_not_there_is_refused_with_what_to_do(service: Service, ann: httpx.Client) -> None:
    """1 one that nobody stored, 2 another user's, 3 one that is in env as well."""
    service.user()[1].put("/v1/secrets/TOKEN", json={"value": VALUE})
    refused = ann.post("/v1/jobs", json={**JOB, "secrets": ["TOKEN"]})
    assert refused.status_code == 422
    assert refused.json()["detail"] == "secrets: there is no secret TOKEN; store it with gavel secret set TOKEN"
    ann.put("/v1/secrets/TOKEN", json={"value": VALUE})
    twice = ann.post("/v1/jobs", json={**JOB, "secrets": ["TOKEN"], "env": {"TOKEN": "1"}})
    assert twice.status_code == 422 and "TOKEN is in env, too" in twice.json()["detail"]
    swept = {"job": {**JOB, "secrets": ["TOKEN"]}, "parameters": {"TOKEN": ["1", "2"]}}
    assert "is a secret of the job, too" in ann.post("/v1/jobs/array", json=swept).json()["detail"]


def test_what_a_job_brings_is_taken_for_a_ray_cluster(start: Callable[..., Service]) -> None:
    """Whether its nodes have Podman is seen when the job starts."""
    ann = start(backend="ray", image_command="no-such-podman").user()[1]
    ann.put("/v1/secrets/TOKEN", json={"value": VALUE})
    for name, value in (("setup", "true"), ("secrets", ["TOKEN"]), ("image", "busybox")):
        assert ann.post("/v1/jobs", json={**JOB, name: value}).status_code == 201
    assert ann.post("/v1/jobs", json={**JOB, "secrets": ["OTHER"]}).status_code == 422


def test_an_image_is_refused_with_what_it_brings_itself_and_without_podman(start: Callable[..., Service]) -> None:
    ann = start(image_command="no-such-podman --root /x").user()[1]
    for name, value in (("python", "/bin/python"), ("setup", "true"), ("workdir", "/a:b")):
        refused = ann.post("/v1/jobs", json={**JOB, "image": "busybox", name: value})
        assert refused.status_code == 422 and refused.json()["detail"].startswith(f"{name}: ")
    refused = ann.post("/v1/jobs", json={**JOB, "image": "busybox"})
    assert refused.json()["detail"].startswith("image: no-such-podman is on no node")


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("TOKEN", {"value": "short"}, "8"),
        ("TOKEN", {"value": "a NUL is in\0side"}, "NUL"),
        ("TOKEN", {"value": 12345678}, "string"),
        ("TOKEN", {"value": "long enough", "more": 1}, "more"),
        ("RANK", {"value": "long enough"}, "RANK"),
        ("GAVEL_X", {"value": "long enough"}, "GAVEL_"),
        ("A-B", {"value": "long enough"}, "pattern"),
    ],
)
def test_what_is_no_secret_is_refused_without_its_value(ann: httpx.Client, name: str, body: Any, says: str) -> None:
    refused = ann.put(f"/v1/secrets/{name}", json=body)
    assert refused.status_code == 422 and says in refused.text
    assert str(body["value"]) not in refused.text
