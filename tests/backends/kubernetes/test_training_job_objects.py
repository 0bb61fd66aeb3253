"""The kind TrainingJob and what is written of it: against the schemas of three releases, and against the API's own."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError
from typer.main import get_command

from api.schemas import JobSubmit
from gavel.cli import app
from gavel.daemon.training_jobs import status as statuses
from gavel.daemon.training_jobs.definition import TrainingJobSpec, definition, structural
from gavel.daemon.training_jobs.objects import TrainingObject, object_of
from gavel.types import Expected, Job, JobState, Lease, Reason
from tests.backends.kubernetes.test_objects import SCHEMAS
from tests.backends.kubernetes.training_jobs import BODY, blocks
from tests.builders import a_cluster, a_job

OF_KIND = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
SEEN = object_of(
    {
        "metadata": {
            "namespace": "vision",
            "name": "first",
            "uid": "1f2e",
            "resourceVersion": "7",
            "generation": 3,
            "finalizers": ["other.example/x"],
        },
        "spec": BODY,
    }
)
NOW_S = 1_700_000_000.0
FULL = {
    **BODY,
    "name": "digits",
    "deadline_at_s": 1e9,
    "env": {"SEED": "7"},
    "secrets": ["TOKEN"],
    "workdir": "/data",
    "data": {"train": "/data/train"},
    "code": {"digest": "0" * 64},
    "labels": {"project": "vision"},
    "throughputs": {"a100": 3.5},
    "preemptible": False,
    "priority": -3,
    "after": ["01kwz3tbcd00001x"],
    "notify": ["end"],
    "accelerator_types": ["!k80"],
    "paused": True,
}


def of_object() -> dict[str, Any]:
    (version,) = definition()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


def every(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """A schema and all schemas in it."""
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[name] for name in ("items", "additionalProperties") if name in schema]
    return [schema, *(each for part in inner for each in every(part))]


def is_valid(spec: object) -> bool:
    return jsonschema.Draft4Validator(of_object()).is_valid({"spec": spec})


def is_taken(spec: object) -> bool:
    try:
        TrainingJobSpec.model_validate_json(json.dumps(spec))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("release", SCHEMAS)
def test_the_kind_is_one_that_the_release_takes(release: str) -> None:
    schema = {**SCHEMAS[release], "$ref": f"#/$defs/{OF_KIND}CustomResourceDefinition"}
    jsonschema.Draft7Validator(schema).validate(definition())
    part = jsonschema.Draft7Validator({**SCHEMAS[release], "$ref": f"#/$defs/{OF_KIND}JSONSchemaProps"})
    for each in every(of_object()):
        part.validate(each)


@pytest.mark.parametrize("release", SCHEMAS)
def test_events_and_the_role_of_the_docs_are_valid(release: str) -> None:
    refused = statuses.refusal({}, SEEN, "Invalid", "spec.argv: no", NOW_S)
    (event,) = statuses.events(SEEN, refused, NOW_S)
    schema = {**SCHEMAS[release], "$ref": "#/$defs/io.k8s.api.core.v1.Event"}
    jsonschema.Draft7Validator(schema).validate(event)
    role = {**SCHEMAS[release], "$ref": "#/$defs/io.k8s.api.rbac.v1.ClusterRole"}
    jsonschema.Draft7Validator(role).validate(blocks("rules:")[0])


def test_every_schema_in_it_is_structural() -> None:
    for each in every(of_object()):
        is_any = each.keys() == {"description", "x-kubernetes-preserve-unknown-fields"}
        assert is_any or each["type"] in ("object", "array", "string", "integer", "number", "boolean")
        assert not each.keys() & {"$ref", "anyOf", "default", "title", "patternProperties", "propertyNames", "examples"}
        assert not ("properties" in each and "additionalProperties" in each)
        assert "\\u" not in re.compile(each.get("pattern", "")).pattern  # Go has no such escape


def test_a_field_of_two_types_may_be_anything_there() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "Either."}
    assert structural(either, {}) == {"description": "Either.", "x-kubernetes-preserve-unknown-fields": True}
    sizes = BODY | {"global_batch": 64}
    assert is_taken(sizes | {"sizes": "1-8"}) and is_taken(sizes | {"sizes": [1, 8]})
    assert not is_taken(sizes | {"sizes": "many"}) and not is_taken(sizes | {"sizes": 4})


def test_spec_has_the_fields_of_a_submission_and_no_others() -> None:
    assert of_object()["properties"]["spec"]["properties"].keys() == {*JobSubmit.model_fields, "paused"}


@pytest.mark.parametrize("spec", [BODY, FULL, *(blocks("kind: TrainingJob")[0]["spec"],)])
def test_what_the_service_takes_the_schema_admits(spec: dict[str, object]) -> None:
    assert is_taken(spec) and is_valid(spec)


@pytest.mark.parametrize(
    "change",
    [
        {"argv": "train.py"},
        {"argv": []},
        {"scale_factor": 0},
        {"scale_factor": 1.5},
        {"weight": "2"},
        {"priority": 11},
        {"name": "With Space"},
        {"notify": ["sometimes"]},
        {"throughputs": {"a100": 0.0}},
        {"throughputs": {"a100": 1e9}},
        {"env": {"SEED": 7}},
        {"env": {"SEED": "a\0b"}},
        {"code": {"commit": ""}},
        {"paused": "yes"},
        {"workdir": "data"},
    ],
)
def test_what_the_schema_excludes_the_service_refuses_too(change: dict[str, object]) -> None:
    assert not is_valid({**BODY, **change}) and not is_taken({**BODY, **change})


def test_the_command_prints_what_kubectl_applies() -> None:
    printed = CliRunner().invoke(get_command(app), ["kubernetes", "crd"])
    assert printed.exit_code == 0 and yaml.safe_load(printed.output) == definition()


# --- the status -------------------------------------------------------------------------------------------------


def shown(job: Job, lease: Lease | None = None, finish: Expected | None = None) -> dict[str, Any]:
    made = statuses.status_of(job, lease, a_cluster(fast=2), finish)
    jsonschema.Draft4Validator(of_object()["properties"]["status"]).validate(made)
    return made


def test_a_running_job_says_where_it_is_and_when_it_ends() -> None:
    job = a_job(state=JobState.LEASED, generation=1, attempt=1, steps_done=40, steps_reported=45, started_at_s=NOW_S)
    lease = Lease(
        job_id="j1",
        generation=1,
        accelerator_type="fast",
        worker_ids=("fast-0", "fast-1"),
        combination=("j1",),
        round_index=1,
        expires_at_s=NOW_S,
    )
    status = shown(job, lease, Expected(at_s=NOW_S + 90, low_s=NOW_S, high_s=NOW_S + 900))
    assert (status["state"], status["progress"], status["where"]) == ("RUNNING", "45%", "2 fast on node-0")
    assert (status["eta"], status["startedAt"]) == ("2023-11-14 22:14", "2023-11-14T22:13:20Z")
    assert "endedAt" not in status


def test_a_job_of_unknown_length_says_its_steps() -> None:
    assert shown(a_job(spec={"total_steps": None}, steps_done=7))["progress"] == "7 steps"


def test_events_are_sent_when_something_has_happened_and_are_the_same_when_sent_again() -> None:
    queued = shown(a_job())
    running = shown(a_job(state=JobState.LEASED, started_at_s=NOW_S))
    failed = shown(
        a_job(state=JobState.FAILED, started_at_s=NOW_S, finished_at_s=NOW_S, reason=Reason.PROGRAM_FAILED, message="x")
    )
    after = {"": queued, "queued": running, "running": failed, "failed": failed}
    before: dict[str, dict[str, Any]] = {"": {}, "queued": queued, "running": running, "failed": failed}
    kinds = {
        name: [(each["type"], each["reason"]) for each in statuses.events(_with(before[name]), now, NOW_S)]
        for name, now in after.items()
    }
    assert kinds == {
        "": [("Normal", "Submitted")],
        "queued": [("Normal", "Started")],
        "running": [("Warning", "Ended")],
        "failed": [],
    }
    first, again = (statuses.events(_with({}), queued, at_s) for at_s in (NOW_S, NOW_S + 5))
    assert [each["metadata"]["name"] for each in first] == [each["metadata"]["name"] for each in again]


def _with(status: dict[str, Any]) -> TrainingObject:
    return replace(SEEN, status=status)


def test_a_refusal_keeps_the_state_of_the_job_and_the_time_since_when_it_holds() -> None:
    queued = shown(a_job())
    first = statuses.refusal(queued, SEEN, "FieldIsFixed", "spec.argv: no", NOW_S)
    again = statuses.refusal(first, replace(SEEN, generation=4), "FieldIsFixed", "spec.image: no", NOW_S + 60)
    assert first["state"] == again["state"] == "QUEUED" and again["observedGeneration"] == 4
    assert again["conditions"][0]["lastTransitionTime"] == first["conditions"][0]["lastTransitionTime"]
    cured = statuses.acceptance(again, replace(SEEN, generation=5), NOW_S + 90)["conditions"][0]
    assert cured["status"] == "True" and cured["lastTransitionTime"] != first["conditions"][0]["lastTransitionTime"]


def test_anybody_may_write_anything_into_a_status() -> None:
    names = {"namespace": "n", "name": "x", "uid": "u", "resourceVersion": "1"}
    assert object_of({"metadata": names, "spec": None, "status": "text"}).status == {}
