"""What tiers are promised is checked against jobs that may not be preempted: at the submit, and when a tier changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx

from gavel.types import JobState, Lease
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record
from tests.api.test_submit import PROGRAM, refused

STAYS = PROGRAM | {"preemptible": False}


def put(service: Service, name: str, **body: Any) -> httpx.Response:
    """Create or change a tier. The cluster has 2 fast and 4 slow workers, and tier gold is guaranteed half of each."""
    there = service.operator().get(f"/v1/tiers/{name}")
    headers = {"If-Match": there.headers["etag"]} if there.is_success else {}
    return service.operator().put(f"/v1/tiers/{name}", json=body, headers=headers)


def test_a_job_that_could_never_stay_is_refused_with_the_limit_of_its_tier(start: Callable[..., Service]) -> None:
    service = start()
    put(service, "lab", non_preemptible_workers=1)
    put(service, "team", parent="lab")
    _, ann = service.user("team", "silver")
    refused(ann.post("/v1/jobs", json=STAYS | {"scale_factor": 2}), "preemptible", "1 workers are all", "tier lab")
    assert ann.post("/v1/jobs", json=STAYS).status_code == 201
    assert ann.post("/v1/jobs", json=PROGRAM | {"scale_factor": 2}).status_code == 201


def test_a_job_that_guarantees_of_others_leave_no_room_for_is_refused(start: Callable[..., Service]) -> None:
    """Beside gold's half there are 1 fast and 2 slow workers for gangs that stay."""
    service = start()
    _, ann = service.user("silver", "gold")
    assert ann.post("/v1/jobs", json=STAYS | {"scale_factor": 2}).status_code == 201
    refused(ann.post("/v1/jobs", json=STAYS | {"scale_factor": 3}), "preemptible", "guarantees of other tiers")
    assert ann.post("/v1/jobs", json=STAYS | {"scale_factor": 3, "tier": "gold"}).status_code == 201


def test_a_tier_may_not_let_jobs_keep_more_than_guarantees_of_others_leave(start: Callable[..., Service]) -> None:
    service = start()
    beyond = put(service, "silver", non_preemptible_workers=4)
    refused(beyond, "non_preemptible_workers", "at most 3 of 6 workers")
    assert put(service, "silver", non_preemptible_workers=3).status_code == 200
    assert put(service, "silver", non_preemptible_workers=3, weight=2.0).status_code == 200
    assert put(service, "gold", guarantee=0.5, non_preemptible_workers=6).status_code == 200


def test_a_guarantee_may_not_be_raised_over_what_other_tiers_let_jobs_keep(start: Callable[..., Service]) -> None:
    service = start()
    assert put(service, "silver", non_preemptible_workers=3).status_code == 200
    refused(put(service, "gold", guarantee=0.75), "guarantee", "tier silver lets such jobs hold 3", "at most 1 of 6")
    refused(
        service.operator().post("/v1/tiers/gold/preview", json={"guarantee": 0.75}), "guarantee", "tier silver lets"
    )
    assert put(service, "gold", guarantee=0.25).status_code == 200


def test_a_guarantee_may_not_be_raised_over_what_gangs_hold_that_nobody_moves(start: Callable[..., Service]) -> None:
    service = start()
    put(service, "gold", guarantee=0.0)
    _, ann = service.user("silver")
    answer = ann.post("/v1/jobs", json=STAYS | {"scale_factor": 3}).raise_for_status()
    job = service.store.job(answer.json()["id"])
    lease = Lease(
        job_id=job.id,
        generation=1,
        combination=(job.id,),
        accelerator_type="slow",
        worker_ids=("slow-0", "slow-1", "slow-2"),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )
    leased = replace(job, state=JobState.LEASED, generation=1)
    service.change(leased, round=a_record([lease], {job.id: (0.0, 1.0)}))
    refused(put(service, "gold", guarantee=0.5), "guarantee", "on slow", "comes to 5 of 4 workers")
    assert put(service, "gold", guarantee=0.25).status_code == 200
    assert put(service, "silver", guarantee=0.75).status_code == 200
