"""A job submitted again: as it was, but for what was asked for, and for whom it was."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.types import JobState
from tests.api.conftest import NOW_S, Service

OLD: dict[str, Any] = {
    "argv": ["python", "train.py", "--batch-size", "8"],
    "name": "first",
    "tier": "silver",
    "weight": 2.0,
    "env": {"SECRET": "hidden", "SEED": "1"},
    "labels": {"project": "vision"},
    "throughputs": {"fast": 12.5},
    "max_retries": 1,
    "workdir": "/home/ann/project",
    "priority": -1,
}


def test_it_has_the_program_and_environment_of_the_old_one_but_for_the_changes(service: Service) -> None:
    _, ann = service.user()
    digest = ann.post("/v1/code-versions", json={"files": []}).json()["digest"]
    old = ann.post("/v1/jobs", json=OLD | {"code": {"digest": digest, "commit": "c" * 40}}).json()
    body = {"max_retries": 3, "env": {"SEED": "2"}, "total_steps": 50}
    answer = ann.post(f"/v1/jobs/{old['id']}/resubmit", json=body)
    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{new['id']}"
    assert (new["resubmit_of"], new["max_retries"], new["total_steps"]) == (old["id"], 3, 50)
    assert dict(service.store.job(new["id"]).spec.env) == {"SECRET": "hidden", "SEED": "2"}
    assert "hidden" not in answer.text
    same = (
        "argv",
        "name",
        "kind",
        "kind_from",
        "tier",
        "weight",
        "labels",
        "throughputs",
        "workdir",
        "priority",
        "code",
    )
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert ann.get(f"/v1/jobs/{old['id']}").json()["state"] == "QUEUED", "the old one stays as it is"


def test_it_has_the_setup_the_secrets_and_the_image_of_the_old_one(service: Service) -> None:
    _, ann = service.user()
    ann.put("/v1/secrets/TOKEN", json={"value": "s3cret-value"})
    image = {name: value for name, value in OLD.items() if name != "workdir"} | {"image": "registry.example/train:1"}
    for body in (OLD | {"setup": "pip install .", "secrets": ["TOKEN"], "kind_args": ["crop"]}, image):
        old = ann.post("/v1/jobs", json=body)
        if old.status_code == 422 and "podman is on no node" in old.text:
            pytest.skip("Podman is not on this machine")
        new = ann.post(f"/v1/jobs/{old.json()['id']}/resubmit", json={}).json()
        fields = ("setup", "secrets", "image", "kind_args", "python")
        assert {name: new[name] for name in fields} == {name: old.json()[name] for name in fields}


def test_a_job_that_has_ended_and_its_deadline_may_be_submitted_again(service: Service) -> None:
    _, ann = service.user()
    old = ann.post("/v1/jobs", json=OLD | {"deadline_at_s": NOW_S + 100}).json()
    job = service.store.job(old["id"])
    service.change(replace(job, state=JobState.FAILED, finished_at_s=NOW_S, spec=replace(job.spec)))
    new = ann.post(f"/v1/jobs/{old['id']}/resubmit", json={}).json()
    assert (new["state"], new["steps_done"], new["deadline_at_s"]) == ("QUEUED", 0, NOW_S + 100)


def test_a_key_makes_one_job_and_is_not_for_another(service: Service) -> None:
    _, ann = service.user()
    one, other = (ann.post("/v1/jobs", json=OLD).json()["id"] for _ in range(2))
    headers = {"Idempotency-Key": "again"}
    first = ann.post(f"/v1/jobs/{one}/resubmit", json={}, headers=headers)
    second = ann.post(f"/v1/jobs/{one}/resubmit", json={}, headers=headers)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["Idempotency-Replayed"] == "true"
    assert ann.post(f"/v1/jobs/{other}/resubmit", json={}, headers=headers).status_code == 422


def test_what_an_operator_submits_again_belongs_to_the_job_s_user(service: Service) -> None:
    name, ann = service.user()
    old = ann.post("/v1/jobs", json=OLD).json()
    new = service.operator().post(f"/v1/jobs/{old['id']}/resubmit", json={}).json()
    assert (new["user"], new["kind"]) == (name, old["kind"])


def test_a_member_of_an_array_keeps_its_values_and_leaves_the_array(service: Service) -> None:
    _, ann = service.user()
    job = {"argv": ["./train", "--rate", "{RATE}"]}
    made = ann.post("/v1/jobs/array", json={"job": job, "parameters": {"RATE": ["1", "2"]}}).json()["items"]
    new = ann.post(f"/v1/jobs/{made[1]['id']}/resubmit", json={}).json()
    assert (new["argv"], new["array_id"]) == (["./train", "--rate", "2"], None)
    assert dict(service.store.job(new["id"]).spec.env) == {"RATE": "2", "GAVEL_ARRAY_INDEX": "1"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tier": "platinum"}, "tier"),
        ({"scale_factor": 900}, "scale_factor"),
        ({"env": {"RANK": "1"}}, "env.RANK"),
        ({"priority": 5}, "priority"),
        ({"argv": ["other"]}, "argv"),
    ],
)
def test_changes_are_checked_as_any_submit_is(service: Service, body: dict[str, Any], field: str) -> None:
    _, ann = service.user()
    old = ann.post("/v1/jobs", json=OLD).json()
    answer = ann.post(f"/v1/jobs/{old['id']}/resubmit", json=body)
    assert answer.status_code == 422 and field in answer.text


def test_its_setup_its_secrets_and_its_image_are_those_of_the_old_one(service: Service) -> None:
    _, ann = service.user()
    ann.put("/v1/secrets/HF_TOKEN", json={"value": "a value of hers"})
    hooks = {"dump": "./save $GAVEL_SNAPSHOT_DIR", "restore": "./load $GAVEL_SNAPSHOT_DIR", "total_steps": None}
    for wanted in ({"setup": "pip install -r requirements.txt"}, {"image": "registry.example/train:1"}, hooks):
        old = ann.post("/v1/jobs", json=OLD | wanted | {"secrets": ["HF_TOKEN"]}).json()
        new = ann.post(f"/v1/jobs/{old['id']}/resubmit", json={}).json()
        assert {name: new[name] for name in (*wanted, "secrets")} == wanted | {"secrets": ["HF_TOKEN"]}
