"""Which fields of a job cannot be changed by a new body: all but those of an edit, each found by its name."""

from dataclasses import replace
from typing import Any

import pytest

from api.rules import Rules
from api.schemas import JobPatch, JobSubmit
from api.submission.fixed_fields import changed_fixed_fields
from api.submission.inference import NUMBERS
from api.submission.specs import spec_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.types import Identity, Scope, Tier, in_size
from tests.builders import a_cluster

ANN = Identity(user="ann", scope=Scope.USER, tiers=("gold", "silver"))
RULES = Rules(
    tiers={name: Tier(name=name) for name in ANN.tiers},
    feasibility=Feasibility(a_cluster(fast=4, slow=4)),
    catalogue={},
    now_s=0.0,
    backend="kubernetes",
    sees_use=True,
)
BODY: dict[str, Any] = {"argv": ["python", "train.py"], "secrets": ["A", "A"], "after": ["j1", "j1"]}
OTHER: dict[str, Any] = {
    "kind": "ann/other",
    "argv": ["python", "train.py", "train.py"],
    "name": "other",
    "total_steps": 5,
    "scale_factor": 2,
    "sizes": [2, 1],
    "plans": ["data=1"],
    "global_batch": 64,
    "max_global_batch": 256,
    "tier": "silver",
    "deadline_at_s": 1e9,
    "env": {"SEED": "1"},
    "secrets": ["A", "B"],
    "workdir": "/data",
    "python": "/usr/bin/python3",
    "setup": "true",
    "dump": "true",
    "restore": "true",
    "image": "x",
    "data": {"train": "/data"},
    "code": {"digest": "0" * 64},
    "throughputs": {"fast": 2.0},
    "preemptible": False,
    "mode": "interactive",
    "service": {"port": 0, "readiness": {"path": "/ready"}},
    "longest_s": 600.0,
    "idle_s": 600.0,
    "reserved_at_s": 1e9,
    "accelerator_share": 0.5,
    "max_retries": 1,
    "after": ["j2"],
    "kind_args": ["--width"],
    "notify": [],
    "cpu_cores": 2,
    "memory_bytes": 5,
    "accelerator_types": ["fast"],
    "accelerator_memory_bytes": 5,
    "node_labels": {"disk": "nvme"},
    "topology_label": "disk",
    "regions": ["local"],
    "data_region": "local",
    "data_bytes": 5,
}
OF_SERVICE = (*NUMBERS, "rate", "new_version")  # of a patch: what may change of its `service`
EDITABLE: dict[str, Any] = {"weight": 2.0, "priority": -1, "labels": {"a": "b"}}


def body(**over: Any) -> JobSubmit:
    return JobSubmit.model_validate({**BODY, **over})


def test_each_field_is_one_of_both_sorts() -> None:
    assert {*OTHER, *EDITABLE} == set(JobSubmit.model_fields) and {*EDITABLE, *OF_SERVICE} == set(JobPatch.model_fields)


@pytest.mark.parametrize("name", OTHER)
def test_a_fixed_field_is_found_by_its_name(name: str) -> None:
    assert changed_fixed_fields(body(**{name: OTHER[name]}), spec_of(body(), ANN, RULES), {}) == [name]


def test_an_elastic_job_is_the_same_in_whatever_size_it_runs() -> None:
    elastic = body(sizes=[4, 2, 1], global_batch=64, max_global_batch=256, kind="ann/net")
    assert changed_fixed_fields(elastic, in_size(spec_of(elastic, ANN, RULES), 4), {}) == []


@pytest.mark.parametrize("name", EDITABLE)
def test_what_may_be_edited_is_none(name: str) -> None:
    assert changed_fixed_fields(body(**{name: EDITABLE[name]}), spec_of(body(), ANN, RULES), {}) == []


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"plans": ["data=1", {"name": "a", "argv": ["b"], "sizes": [1]}], "kind": "ann/net"},
        {"tier": "silver"},
        {"kind": "ann/other"},
        {"notify": ["end"]},
        {"code": None},
        {"mode": "interactive"},
    ],
)
def test_the_same_body_changes_nothing(over: dict[str, Any]) -> None:
    assert changed_fixed_fields(body(**over), spec_of(body(**over), ANN, RULES), {}) == []


def test_a_tier_that_is_left_out_is_the_one_that_the_service_chose() -> None:
    assert changed_fixed_fields(body(), spec_of(body(tier="silver"), ANN, RULES), {}) == []


def test_a_kind_of_the_catalogue_brings_its_argv() -> None:
    from api.services import installed_catalogue

    catalogue = installed_catalogue()
    name, entry = next(iter(catalogue.items()))
    rules = replace(RULES, catalogue=catalogue)
    own = JobSubmit(kind=name, total_steps=5)
    spec = spec_of(own, ANN, rules)
    assert changed_fixed_fields(own, spec, catalogue) == []
    assert changed_fixed_fields(own.model_copy(update={"argv": list(entry.argv)}), spec, catalogue) == []
    assert changed_fixed_fields(own.model_copy(update={"argv": ["other"]}), spec, catalogue) == ["argv"]
