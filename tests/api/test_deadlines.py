"""A deadline's outlook and the explanation of a job give the same expected end."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from gavel.types import JobState, Lease
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record

BODY = {"argv": ["x"], "total_steps": 1000, "throughputs": {"fast": 10.0, "slow": 5.0}, "deadline_at_s": NOW_S + 400}


def finish_of(explained: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(explained[f"est_finish{end}_at_s"] for end in ("", "_low", "_high"))


def expected_of(job: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(job["deadline"][f"expected_finish{end}_at_s"] for end in ("", "_low", "_high"))


@pytest.fixture(scope="module")
def jobs(service: Service) -> tuple[httpx.Client, dict[str, str]]:
    """Jobs that run, wait, came after the round, and are paused; and their ids."""
    _, ann = service.user("gold")
    ids = {name: str(ann.post("/v1/jobs", json=BODY).json()["id"]) for name in ("runs", "waits", "paused")}
    lease = Lease(
        job_id=ids["runs"],
        generation=1,
        combination=(ids["runs"],),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )
    record = a_record([lease], {ids["runs"]: [0.5, 0.0], ids["waits"]: [0.5, 0.0]})
    running = replace(service.store.job(ids["runs"]), state=JobState.LEASED, generation=1)
    service.change(running, round=replace(record, problem=replace(record.problem, now_s=NOW_S)))
    ids["new"] = str(ann.post("/v1/jobs", json=BODY).json()["id"])
    ann.post(f"/v1/jobs/{ids['paused']}/pause")
    return ann, ids


@pytest.mark.parametrize("name", ["runs", "waits", "new", "paused"])
def test_no_page_gives_two_answers_to_when_a_job_ends(jobs: tuple[httpx.Client, dict[str, str]], name: str) -> None:
    ann, ids = jobs
    job = ann.get(f"/v1/jobs/{ids[name]}").json()
    listed = next(each for each in ann.get("/v1/jobs").json()["items"] if each["id"] == ids[name])
    finish = finish_of(ann.get(f"/v1/jobs/{ids[name]}/explanation").json())
    assert expected_of(job) == expected_of(listed) == finish
    assert (finish == (None, None, None)) == (name == "paused")


def test_the_submit_s_answer_is_that_of_the_explanation(jobs: tuple[httpx.Client, dict[str, str]]) -> None:
    ann, _ = jobs
    made = ann.post("/v1/jobs", json=BODY).json()
    assert expected_of(made) == finish_of(ann.get(f"/v1/jobs/{made['id']}/explanation").json())
    assert made["deadline"]["expected_finish_at_s"] >= NOW_S + 100.0


def test_the_api_names_every_outlook(service: Service) -> None:
    schemas = service.client().get("/openapi.json").json()["components"]["schemas"]
    assert schemas["DeadlineOutlook"]["enum"] == ["met", "at_risk", "missed", "unknown"]
