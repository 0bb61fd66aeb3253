"""Interactive sessions over the API: what is accepted and refused of a submit, and how one is extended."""

from collections.abc import Callable
from typing import Any

import httpx

from gavel.types import JobState
from gavel.types.copying import changed
from tests.api.conftest import Service
from tests.api.test_submit import PROGRAM, refused

SESSION = {name: value for name, value in PROGRAM.items() if name != "total_steps"} | {"mode": "interactive"}


def submitted(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=SESSION | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def extended(client: httpx.Client, job: dict[str, Any], by_s: float, version: int | None = None) -> httpx.Response:
    tag = f'W/"{job["version"] if version is None else version}"'
    return client.post(f"/v1/jobs/{job['id']}/extend", json={"by_s": by_s}, headers={"If-Match": tag})


def test_a_session_is_not_preemptible_and_lasts_four_hours_if_nobody_says_more(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann)
    assert (job["mode"], job["preemptible"], job["longest_s"], job["idle_s"]) == (
        "interactive",
        False,
        4 * 3600.0,
        None,
    )
    assert job["session_ends_at_s"] is None
    assert ann.post("/v1/jobs", json=PROGRAM).json()["mode"] == "batch"


def test_one_that_is_longer_than_its_tier_allows_is_refused_with_the_figure(start: Callable[..., Service]) -> None:
    service = start()
    assert service.operator().put("/v1/tiers/lab", json={"session_longest_s": 7200}).status_code == 201
    _, ann = service.user("lab", "silver")
    assert submitted(ann)["longest_s"] == 7200.0
    refused(ann.post("/v1/jobs", json=SESSION | {"longest_s": 7201}), "longest_s", "tier lab may last 7200 s (2 h)")
    refused(ann.post("/v1/jobs", json=SESSION | {"longest_s": 43_201, "tier": "silver"}), "longest_s", "43200 s (12 h)")


def test_what_does_not_go_together_is_refused(service: Service) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=SESSION | {"total_steps": 5}), "total_steps", "ends by its time")
    refused(ann.post("/v1/jobs", json=PROGRAM | {"longest_s": 600}), "longest_s", "mode: interactive")
    refused(ann.post("/v1/jobs", json=PROGRAM | {"idle_s": 600}), "idle_s", "mode: interactive")


def test_a_backend_that_does_not_see_use_refuses_idle_s(start: Callable[..., Service]) -> None:
    service = start(backend="simulated")
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=SESSION | {"idle_s": 600}), "idle_s", "backend simulated", "longest_s")
    submitted(ann, longest_s=600)


def test_it_is_extended_up_to_the_most_of_its_tier_and_only_once_by_one_request(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, longest_s=36_000)
    longer = extended(ann, job, 3600)
    assert (longer.status_code, longer.json()["longest_s"]) == (200, 39_600.0)
    again = extended(ann, job, 3600)
    assert (again.status_code, again.json()["type"]) == (412, "stale-version")
    refused(extended(ann, longer.json(), 3601), "by_s", "43200 s (12 h)", "at most 3600 s more")
    assert ann.post(f"/v1/jobs/{job['id']}/extend", json={"by_s": 60}).status_code == 428
    audit = ann.get(f"/v1/jobs/{job['id']}/audit").json()["items"][0]
    assert (audit["before"], audit["after"]) == ({"longest_s": 36_000.0}, {"longest_s": 39_600.0})


def test_a_batch_job_another_users_and_one_that_has_ended_are_not_extended(service: Service) -> None:
    _, ann = service.user()
    _, bob = service.user()
    batch = ann.post("/v1/jobs", json=PROGRAM).json()
    refused(extended(ann, batch, 60), "by_s", "no interactive session")
    job = submitted(ann)
    assert extended(bob, job, 60).status_code == 404
    service.change(changed(service.store.job(job["id"]), state=JobState.COMPLETED))
    assert extended(ann, job, 60).status_code == 409


def test_one_that_is_being_ended_is_not_extended(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann)
    service.change(changed(service.store.job(job["id"]), state=JobState.LEASED, over="The session has had its time."))
    answer = extended(ann, ann.get(f"/v1/jobs/{job['id']}").json(), 60)
    assert answer.status_code == 409
    assert "is ending" in answer.json()["detail"]


def test_one_submitted_again_is_a_session_again(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, longest_s=600, idle_s=60)
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={}).json()
    assert (again["mode"], again["longest_s"], again["idle_s"]) == ("interactive", 600.0, 60.0)


def test_a_session_may_share_its_accelerators_and_no_other_job(service: Service) -> None:
    _, ann = service.user()
    assert submitted(ann, accelerator_share=0.5)["accelerator_share"] == 0.5
    assert submitted(ann)["accelerator_share"] == 1.0
    refused(ann.post("/v1/jobs", json=PROGRAM | {"accelerator_share": 0.5}), "accelerator_share", "mode: interactive")
    both = {"accelerator_share": 0.5, "reserved_at_s": 1_900_000.0}
    refused(ann.post("/v1/jobs", json=SESSION | both), "accelerator_share", "are whole")
    assert "by two at most" in ann.post("/v1/jobs", json=SESSION | {"accelerator_share": 0.3}).text
