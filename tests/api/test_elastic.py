"""Elastic jobs over the API: what is accepted and refused of a submit, and what a job shows of its sizes."""

from typing import Any

import httpx
import pytest

from gavel.mechanism.cluster.reconcile import env_of
from gavel.mechanism.jobs.sizes import resized
from tests.api.conftest import Service
from tests.api.test_submit import PROGRAM, refused

ELASTIC = PROGRAM | {"sizes": [4, 1, 2, 2], "global_batch": 64}


def submitted(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=ELASTIC | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_the_sizes_are_kept_in_order_and_the_job_begins_with_the_smallest(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann)
    assert (job["sizes"], job["global_batch"], job["scale_factor"]) == ([1, 2, 4], 64, 1)
    assert job["kind"].endswith("-global-batch-64")
    rigid = ann.post("/v1/jobs", json=PROGRAM).json()
    assert (rigid["sizes"], rigid["global_batch"]) == ([], None)
    assert job["kind"].startswith(rigid["kind"])


def test_sizes_of_a_range_that_do_not_divide_the_batch_are_left_out(service: Service) -> None:
    """1 a range becomes the sizes that the job has, 2 which it has also where it is submitted again."""
    _, ann = service.user()
    assert submitted(ann, sizes="2-4", global_batch=66)["sizes"] == [2, 3]
    job = submitted(ann, sizes="1-4")
    assert job["sizes"] == [1, 2, 4]
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={})
    assert again.json()["sizes"] == [1, 2, 4], again.text


def test_a_kind_of_its_own_is_another_with_another_batch(service: Service) -> None:
    name, ann = service.user()
    kinds = [submitted(ann, kind=f"{name}/net", global_batch=batch)["kind"] for batch in (64, 128)]
    assert kinds == [f"{name}/net-global-batch-64", f"{name}/net-global-batch-128"]


def test_an_update_may_grow_where_that_is_stated(service: Service) -> None:
    """1 it is shown, and in the kind, 2 a job that is submitted again has it, 3 the ranks are told."""
    name, ann = service.user()
    job = submitted(ann, kind=f"{name}/net", max_global_batch=512)
    assert (job["max_global_batch"], job["kind"]) == (512, f"{name}/net-max-batch-512-global-batch-64")
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={}).json()
    assert (again["max_global_batch"], again["kind"]) == (512, job["kind"])
    assert submitted(ann)["max_global_batch"] is None
    env = env_of(service.store.job(job["id"]).spec)
    assert (env["GAVEL_GLOBAL_BATCH"], env["GAVEL_MAX_GLOBAL_BATCH"]) == ("64", "512")


def test_the_size_in_force_is_stored_and_shown(service: Service) -> None:
    _, ann = service.user()
    job_id = submitted(ann)["id"]
    service.change(resized(service.store.job(job_id), 4))
    assert ann.get(f"/v1/jobs/{job_id}").json()["scale_factor"] == 4
    assert "of the sizes 1, 2, 4" in ann.get(f"/v1/jobs/{job_id}/explanation").json()["message"]
    edited = ann.patch(f"/v1/jobs/{job_id}", json={"weight": 2.0}, headers={"If-Match": "*"})
    assert (edited.json()["scale_factor"], edited.json()["weight"]) == (4, 2.0), edited.text
    assert service.store.job(job_id).spec.scale_factor == 4


def test_one_that_is_submitted_again_has_the_same_sizes(service: Service) -> None:
    name, ann = service.user()
    job = submitted(ann, kind=f"{name}/net")
    service.change(resized(service.store.job(job["id"]), 4))
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={})
    assert again.status_code == 201, again.text
    names = ("sizes", "global_batch", "kind")
    assert [again.json()[each] for each in names] == [job[each] for each in names]
    assert again.json()["scale_factor"] == 1


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"global_batch": None}, "global_batch", "how many samples a step is"),
        ({"sizes": []}, "sizes", "which sizes the gang may have"),
        ({"sizes": [2, 3, 4]}, "global_batch", "among size 3; the nearest that every size divides: 60 and 72"),
        ({"sizes": [3, 4], "global_batch": 5}, "global_batch", "among sizes 3, 4; the nearest that every"),
        ({"sizes": [1, 8]}, "sizes", "no type has 8 workers; at most 4 fit"),
        ({"max_global_batch": 127}, "max_global_batch", "at least 128, twice the global batch"),
        ({"max_global_batch": 128, "global_batch": None, "sizes": []}, "max_global_batch", "with global_batch"),
        ({"max_global_batch": 1}, "body.max_global_batch", ""),
        ({"scale_factor": 2}, "scale_factor", "the rounds choose one of these"),
        ({"preemptible": False}, "preemptible", "a gang is stopped where its size changes"),
        ({"mode": "interactive", "total_steps": None}, "sizes", "its size cannot change"),
        ({"throughputs": {"fast": 2.0}}, "throughputs", "another at each size"),
        ({"kind": "mlp-b256", "argv": None}, "sizes", "does not divide its batch"),
        ({"sizes": [0]}, "body.sizes.0", ""),
        ({"sizes": "3"}, "body.sizes", "write it as 1-8"),
        ({"sizes": "3-1"}, "body.sizes", "the first size comes first"),
        ({"sizes": "1-2000"}, "body.sizes", "none is above 1024"),
        ({"sizes": "3-3"}, "body.sizes", "none of 3 divides a global batch of 64; the nearest sizes that do: 2 and 4"),
        (
            {"sizes": "5-7"},
            "body.sizes",
            "none of 5, 6, 7 divides a global batch of 64; the nearest sizes that do: 4 and 8",
        ),
        (
            {"sizes": "65-900"},
            "body.sizes",
            "none of the sizes 65 to 900 divides a global batch of 64; the nearest sizes that do: 64",
        ),
        ({"sizes": "1-8"}, "sizes", "no type has 8 workers; at most 4 fit"),
        ({"sizes": "1-4", "global_batch": None}, "global_batch", "how many samples a step is"),
        ({"sizes": "1-4", "global_batch": 0}, "body.global_batch", ""),
    ],
)
def test_what_does_not_go_together_is_refused(service: Service, fields: dict[str, Any], field: str, words: str) -> None:
    _, ann = service.user()
    body = {name: value for name, value in (ELASTIC | fields).items() if value is not None}
    refused(ann.post("/v1/jobs", json=body), field, words)


def test_the_jobs_of_an_array_are_elastic(service: Service) -> None:
    _, ann = service.user()
    answer = ann.post("/v1/jobs/array", json={"job": ELASTIC, "parameters": {"SEED": ["1", "2"]}})
    assert answer.status_code == 201, answer.text
    assert [job["sizes"] for job in answer.json()["items"]] == [[1, 2, 4]] * 2
