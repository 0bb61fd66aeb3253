"""Limits of tiers and users: what is refused at submission, with figures; a repeated key is not refused."""

from collections.abc import Callable

from gavel.ports import ThroughputEstimate, ThroughputSource
from gavel.types import Usage, User, month_of
from tests.api.conftest import NOW_S, Service
from tests.api.test_submit import PROGRAM, refused

MONTH = month_of(NOW_S)


def test_a_replayed_submit_is_answered_whatever_has_become_of_the_limits(start: Callable[..., Service]) -> None:
    service = start(unfinished_jobs_per_user=1)
    name, ann = service.user()
    first = ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"})
    assert ann.post("/v1/jobs", json=PROGRAM).status_code == 429
    service.store.put_user(User(name=name, tiers=("silver",)), by="op", now_s=NOW_S)  # no longer in the job's tier
    again = ann.post("/v1/jobs", json=PROGRAM, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    refused(
        ann.post("/v1/jobs", json=PROGRAM | {"total_steps": 7}, headers={"Idempotency-Key": "k"}), "Idempotency-Key"
    )


def test_a_tier_has_so_many_unfinished_jobs(service: Service) -> None:
    service.operator().put("/v1/tiers/small", json={"max_jobs": 2})
    _, ann = service.user("small")
    _, bob = service.user("small", "silver")
    assert ann.post("/v1/jobs", json=PROGRAM).status_code == 201
    both = bob.post("/v1/jobs/batch", json={"jobs": [PROGRAM, PROGRAM]})
    assert both.status_code == 429 and "retry-after" in both.headers
    assert "TooManyJobs: tier small has 1 unfinished jobs and may have 2, so 2 more" in both.json()["detail"]
    assert bob.post("/v1/jobs", json=PROGRAM).status_code == 201
    assert bob.post("/v1/jobs", json=PROGRAM | {"tier": "silver"}).status_code == 201


def test_a_job_that_no_month_can_pay_for_is_refused_with_its_hours(service: Service) -> None:
    service.operator().put("/v1/tiers/metered", json={"accelerator_hours_per_month": 1.0})
    name, ann = service.user("metered")
    estimate = ThroughputEstimate(
        kind=f"{name}/known",
        scale_factor=2,
        accelerator_type="fast",
        steps_per_s=1.0,
        relative_error=0.1,
        source=ThroughputSource.MEASURED,
        measurements=9,
    )
    service.change(throughputs=(estimate,))
    job = PROGRAM | {"kind": f"{name}/known", "scale_factor": 2}
    answer = ann.post("/v1/jobs", json=job | {"total_steps": 1801})
    refused(answer, "total_steps", "ExceedsMaxQuota", "1801 steps need 1.00 accelerator hours", "1 a month")
    assert ann.post("/v1/jobs", json=job | {"total_steps": 1800}).status_code == 201
    assert ann.post("/v1/jobs", json=PROGRAM | {"total_steps": 10**9}).status_code == 201  # nobody knows its speed


def test_usage_is_shown_beside_its_limits_to_who_may_use_the_tier(service: Service) -> None:
    operator = service.operator()
    operator.put("/v1/tiers/team", json={"accelerator_hours_per_month": 10.0, "budget_usd_per_month": 5.0})
    _, ann = service.user("team")
    _, bob = service.user("silver")
    service.change(usage=(Usage(tier="team", month=MONTH, accelerator_hours=2.5, cost_usd=1.25),))
    used = ann.get("/v1/tiers/team/usage").json()
    assert (used["month"], used["accelerator_hours"], used["accelerator_hours_per_month"]) == (MONTH, 2.5, 10.0)
    assert (used["cost_usd"], used["budget_usd_per_month"]) == (1.25, 5.0)
    assert ann.get("/v1/tiers/team/usage?month=1999-01").json()["cost_usd"] == 0.0
    assert bob.get("/v1/tiers/team/usage").status_code == 404
    assert operator.get("/v1/tiers/team/usage?month=1999-13").status_code == 422


def test_a_guarantee_above_the_cap_is_refused(service: Service) -> None:
    operator = service.operator()
    refused(operator.put("/v1/tiers/odd", json={"guarantee": 0.5, "cap": 0.25}), "body", "above the cap")
    assert operator.get("/v1/tiers/odd").status_code == 404
