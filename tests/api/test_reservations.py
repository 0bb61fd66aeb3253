"""Reservations of sessions over the API: accepted with their type, refused with what would do, listed, given back."""

from collections.abc import Callable
from typing import Any

from tests.api.conftest import NOW_S, ROUND_S, Service
from tests.api.test_sessions import SESSION, extended, submitted
from tests.api.test_submit import PROGRAM, refused

AT_S = NOW_S + 3600.0


def test_a_reservation_says_of_which_type_it_is_and_when_it_ends(service: Service) -> None:
    _, ann = service.user("silver")
    job = submitted(ann, reserved_at_s=AT_S, longest_s=600, accelerator_types=["slow"])
    assert (job["mode"], job["reserved_at_s"], job["reserved_type"]) == ("interactive", AT_S, "slow")
    assert job["session_ends_at_s"] == AT_S + 600.0
    shown = ann.get(f"/v1/jobs/{job['id']}").json()
    assert (shown["reserved_at_s"], shown["session_ends_at_s"]) == (AT_S, AT_S + 600.0)


def test_the_guarantee_of_another_tier_and_other_reservations_are_in_the_way(
    start: Callable[..., Service],
) -> None:
    """Of 4 slow workers gold is guaranteed 2, so that silver reserves 2 at a time."""
    service = start()
    _, ann = service.user("silver")
    slow = {"reserved_at_s": AT_S, "longest_s": 600, "accelerator_types": ["slow"]}
    submitted(ann, **slow, scale_factor=2)
    answer = ann.post("/v1/jobs", json=SESSION | slow)
    refused(answer, "reserved_at_s", "guarantees of other tiers", "It can be at 1970-01-12 14:57:00 UTC")
    later = submitted(ann, **slow | {"reserved_at_s": 1_004_220.0})
    assert later["reserved_type"] == "slow"
    refused(ann.post("/v1/jobs", json=SESSION | slow | {"reserved_at_s": NOW_S + ROUND_S}), "reserved_at_s", "120 s")


def test_what_does_not_go_together_is_refused(service: Service) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=PROGRAM | {"reserved_at_s": AT_S}), "reserved_at_s", "mode: interactive")
    first = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    refused(ann.post("/v1/jobs", json=SESSION | {"reserved_at_s": AT_S, "after": [first]}), "after", "at its time")
    array = {"job": SESSION | {"reserved_at_s": AT_S}, "count": 2}
    refused(ann.post("/v1/jobs/array", json=array), "reserved_at_s", "alone")


def test_the_list_shows_others_without_their_names_and_none_that_is_given_back(
    start: Callable[..., Service],
) -> None:
    service = start()
    name, ann = service.user("silver")
    _, bob = service.user("silver")
    later = submitted(ann, reserved_at_s=AT_S + 1800.0, longest_s=600, name="second")
    first = submitted(ann, reserved_at_s=AT_S, longest_s=600, name="first")
    submitted(ann)  # is not reserved
    mine, others, all_of_them = (_items(each) for each in (ann, bob, service.operator()))
    assert [each["job_id"] for each in mine] == [first["id"], later["id"]] == [each["job_id"] for each in all_of_them]
    assert [(each["job_id"], each["user"], each["name"]) for each in others] == [(None, None, None)] * 2
    assert (mine[0]["user"], mine[0]["reserved_at_s"], mine[0]["ends_at_s"]) == (name, AT_S, AT_S + 600.0)
    assert (mine[0]["workers"], mine[0]["has_started"]) == (1, False)
    assert ann.post(f"/v1/jobs/{first['id']}/cancel").status_code == 202
    assert [each["job_id"] for each in _items(ann)] == [later["id"]]


def _items(client: Any) -> list[dict[str, Any]]:
    return list(client.get("/v1/reservations").json()["items"])


def test_an_extension_that_is_in_the_way_of_a_reservation_is_refused(start: Callable[..., Service]) -> None:
    service = start()
    _, ann = service.user("silver")
    first = submitted(ann, reserved_at_s=AT_S, longest_s=600, scale_factor=2, accelerator_types=["slow"])
    submitted(ann, reserved_at_s=AT_S + 900.0, longest_s=600, accelerator_types=["slow"])
    longer = extended(ann, first, 300)
    assert longer.json()["session_ends_at_s"] == AT_S + 900.0
    refused(extended(ann, longer.json(), 1), "by_s", "in the way of a reservation")


def test_one_submitted_again_is_not_reserved(service: Service) -> None:
    _, ann = service.user("silver")
    job = submitted(ann, reserved_at_s=AT_S)
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={}).json()
    assert (again["mode"], again["reserved_at_s"], again["reserved_type"]) == ("interactive", None, "")


def test_the_same_key_gives_the_same_reservation(
    start: Callable[..., Service],
) -> None:
    service = start()
    _, ann = service.user("silver")
    body = SESSION | {"reserved_at_s": AT_S, "longest_s": 600, "scale_factor": 2}
    first, again = (ann.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, first.json()["id"]) == (201, again.json()["id"])
    assert len(_items(ann)) == 1
