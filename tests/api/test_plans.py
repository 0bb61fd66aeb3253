"""Execution plans over the API: what is accepted and refused of a submit, and what a job shows of its plans."""

from typing import Any

import httpx
import pytest

from gavel.mechanism.jobs.sizes import resized, under_plan
from tests.api.conftest import Service
from tests.api.test_submit import PROGRAM, refused

ELASTIC = PROGRAM | {"sizes": [1, 2, 4], "global_batch": 64}
PLANS: list[Any] = [
    "data=1",
    "tensor=2",
    {"name": "deep", "parameters": {"pipeline": 4}, "argv": ["python", "deep.py"]},
]


def submitted(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=ELASTIC | {"plans": PLANS} | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_each_plan_holds_at_the_sizes_that_its_parameters_divide_and_the_first_one_is_in_force(
    service: Service,
) -> None:
    _, ann = service.user()
    job = submitted(ann)
    assert [(each["name"], each["sizes"]) for each in job["plans"]] == [
        ("data=1", [1, 2, 4]),
        ("tensor=2", [2, 4]),
        ("deep", [4]),
    ]
    assert (job["plan"], job["kind"]) == ("data=1", job["plans"][0]["kind"])
    assert job["plans"][2]["argv"] == ["python", "deep.py"]
    kinds = [each["kind"] for each in job["plans"]]
    assert len(set(kinds)) == 3 and all(kind.endswith("-global-batch-64") for kind in kinds)
    assert ann.post("/v1/jobs", json=PROGRAM).json()["plan"] is None


def test_a_rigid_job_has_plans_too_and_a_plan_says_where_it_holds(service: Service) -> None:
    _, ann = service.user()
    rigid = PROGRAM | {
        "scale_factor": 2,
        "plans": ["tensor=2", {"parameters": {"data": 2}, "accelerator_types": ["fast"]}],
    }
    job = ann.post("/v1/jobs", json=rigid).json()
    assert [each["sizes"] for each in job["plans"]] == [[2], [2]]
    assert job["plans"][1]["accelerator_types"] == ["fast"] and job["accelerator_types"] == []
    assert job["kind"].endswith("[tensor=2]")


def test_the_plan_in_force_is_stored_and_one_that_is_submitted_again_has_the_same_plans(service: Service) -> None:
    name, ann = service.user()
    job = submitted(ann, kind=f"{name}/net")
    service.change(under_plan(resized(service.store.job(job["id"]), 2), "tensor=2"))
    shown = ann.get(f"/v1/jobs/{job['id']}").json()
    assert (shown["plan"], shown["kind"]) == ("tensor=2", f"{name}/net[tensor=2]-global-batch-64")
    edited = ann.patch(f"/v1/jobs/{job['id']}", json={"weight": 2.0}, headers={"If-Match": "*"})
    assert (edited.json()["plan"], edited.json()["weight"]) == ("tensor=2", 2.0), edited.text
    assert service.store.job(job["id"]).spec.plan == "tensor=2"
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={})
    assert again.status_code == 201, again.text
    assert [again.json()[each] for each in ("plan", "plans", "kind")] == [
        job[each] for each in ("plan", "plans", "kind")
    ]


def test_the_jobs_of_an_array_have_the_plans_with_their_own_command_lines(service: Service) -> None:
    _, ann = service.user()
    plan = {"name": "own", "argv": ["python", "own.py", "--rate", "{RATE}"]}
    body = {"job": PROGRAM | {"plans": ["data=1", plan]}, "parameters": {"RATE": ["0.1", "0.2"]}}
    jobs = ann.post("/v1/jobs/array", json=body).json()["items"]
    assert [job["plans"][1]["argv"][-1] for job in jobs] == ["0.1", "0.2"]
    assert len({job["plans"][1]["kind"] for job in jobs}) == 1
    assert jobs[0]["kind"] == jobs[0]["plans"][0]["kind"] != jobs[0]["plans"][1]["kind"]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"plans": ["tensor=3"]}, "plans.0", "needs a multiple of 3 workers, and the job has 1, 2, 4; the nearest"),
        ({"plans": ["tensor=3"]}, "plans.0", "that would do: 3 and 6, or state the sizes of the plan"),
        ({"plans": ["data=1", {"name": "data=1"}]}, "plans.1.name", "is the name of plans.0 too"),
        ({"plans": ["tensor=2"]}, "sizes", "no plan holds at size 1; add one that does, or leave 1 out"),
        ({"plans": [{"parameters": {"data": 1}, "sizes": [3]}]}, "plans.0.sizes", "no size 3; it has 1, 2, 4"),
        ({"plans": ["tensor=0"]}, "body.plans.0.parameters", "tensor=0: a parameter is a whole number of at least 1"),
        (
            {"plans": ["tensor=two"]},
            "body.plans.0.parameters",
            "a parameter is a whole number of at least 1, such as tensor=2",
        ),
        ({"plans": ["fast"]}, "body.plans.0", "'fast' is no parameter; write a plan as tensor=2,pipeline=1"),
        ({"plans": [{"parameters": {"tensor": 1.5}}]}, "body.plans.0.parameters", "a whole number of at least 1"),
        ({"plans": [{}]}, "body.plans.0", "neither name nor parameters"),
        ({"plans": [{"name": "a", "argv": []}]}, "body.plans.0.argv", "the command is empty; name a program"),
        ({"plans": [f"data={n}" for n in range(1, 18)]}, "body.plans", "17 plans are too many to try; keep at most 16"),
        ({"plans": [{"name": "a", "accelerator_types": ["fats"]}]}, "plans.0.accelerator_types", "no accelerator type"),
        (
            {"plans": [{"name": "a", "accelerator_memory_bytes": 1 << 50}]},
            "plans.0.accelerator_memory_bytes",
            "under plan a no accelerator type has room",
        ),
        ({"preemptible": False}, "preemptible", "a gang is stopped where its"),
        (
            {"throughputs": {"slow": 2.0}, "sizes": [], "global_batch": None, "scale_factor": 4},
            "throughputs",
            "another under each",
        ),
        ({"kind": "mlp-b256", "argv": None, "sizes": [], "global_batch": None}, "plans", "knows no plans"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_field_and_what_would_do(
    service: Service, fields: dict[str, Any], field: str, words: str
) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=ELASTIC | {"plans": PLANS} | fields), field, words)


def test_a_job_begins_with_the_first_plan_that_holds_at_its_smallest_size(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, plans=["tensor=2", "data=1"])
    assert (job["scale_factor"], job["plan"], job["kind"]) == (1, "data=1", job["plans"][1]["kind"])
    body = {"job": ELASTIC | {"plans": ["tensor=2", "data=1"]}, "count": 2}
    members = ann.post("/v1/jobs/array", json=body).json()["items"]
    assert [(each["plan"], each["kind"]) for each in members] == [("data=1", job["kind"])] * 2
