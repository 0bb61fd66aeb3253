"""Tiers with their versions, users, and tokens."""

from typing import Any

import httpx
import pytest

from tests.api.conftest import Service


def put(client: httpx.Client, name: str, **body: Any) -> httpx.Response:
    headers = {key: body.pop(key) for key in ("If-Match", "If-None-Match") if key in body}
    return client.put(f"/v1/tiers/{name}", json=body, headers=headers)


def test_a_tier_is_created_then_changed_by_who_read_it_last(service: Service) -> None:
    operator = service.operator()
    made = put(operator, "bronze", weight=2.0)
    assert made.status_code == 201, made.text
    assert made.json() == {
        "name": "bronze",
        "weight": 2.0,
        "objective": "fairness",
        "within_user": "fast",
        "guarantee": 0.0,
        "cap": 1.0,
        "default_priority": 0,
        "max_jobs": None,
        "accelerator_hours_per_month": None,
        "budget_usd_per_month": None,
        "non_preemptible_workers": None,
        "session_longest_s": None,
        "parent": None,
        "version": 1,
    }
    read = operator.get("/v1/tiers/bronze")
    assert read.headers["etag"] == made.headers["etag"]
    changed = put(operator, "bronze", weight=3.0, objective="fifo", **{"If-Match": read.headers["etag"]})
    assert (changed.status_code, changed.json()["weight"], changed.json()["objective"]) == (200, 3.0, "fifo")
    stale = put(operator, "bronze", weight=4.0, **{"If-Match": read.headers["etag"]})
    assert (stale.status_code, stale.json()["type"]) == (412, "stale-version")
    assert operator.get("/v1/tiers/bronze").json() == changed.json()


def test_a_change_must_say_which_version_it_changes(service: Service) -> None:
    answer = put(service.operator(), "silver", weight=2.0)
    assert (answer.status_code, answer.json()["type"]) == (428, "version-required")
    assert "If-Match" in answer.json()["detail"]


def test_preconditions_that_do_not_hold_change_nothing(service: Service) -> None:
    operator = service.operator()
    before = operator.get("/v1/tiers").json()
    assert put(operator, "silver", **{"If-None-Match": "*"}).status_code == 412
    assert put(operator, "silver", **{"If-Match": 'W/"1"'}).status_code == 412
    assert put(operator, "no-such-tier", **{"If-Match": '"1"'}).status_code == 412
    assert operator.get("/v1/tiers").json() == before


def test_any_version_may_be_named_and_a_new_tier_asked_for_as_new(service: Service) -> None:
    operator = service.operator()
    assert put(operator, "fresh", **{"If-None-Match": "*"}).status_code == 201
    assert put(operator, "fresh", weight=5.0, **{"If-Match": "*"}).json()["weight"] == 5.0


def test_a_tier_that_has_not_changed_is_not_sent_again(service: Service) -> None:
    _, ann = service.user()
    tag = ann.get("/v1/tiers/gold").headers["etag"]
    assert ann.get("/v1/tiers/gold", headers={"If-None-Match": tag}).status_code == 304
    assert ann.get("/v1/tiers/gold", headers={"If-None-Match": '"999"'}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"weight": 0}, "body.weight", "0.001"),
        ({"weight": 1001}, "body.weight", "1000"),
        ({"guarantee": -0.1}, "body.guarantee", "greater than or equal to 0"),
        ({"guarantee": 1.1}, "body.guarantee", "less than or equal to 1"),
        ({"guarantee": 0.6}, "guarantee", "at most 0.5"),
        ({"objective": "makespan"}, "objective", "fairness"),
        ({"within_user": "makespan"}, "within_user", "one of fast, equal"),
        ({"objective": "Fair!"}, "body.objective", "match pattern"),
        ({"color": "red"}, "body.color", "not permitted"),
    ],
)
def test_a_bad_tier_names_the_field_and_the_fix(service: Service, body: dict[str, Any], field: str, words: str) -> None:
    answer = put(service.operator(), "rejected", **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert words in answer.json()["detail"]
    assert service.operator().get("/v1/tiers/rejected").status_code == 404


def test_a_new_user_can_submit_with_its_token(service: Service) -> None:
    operator = service.operator()
    made = operator.put("/v1/users/carol", json={"tiers": ["silver", "gold", "silver"]})
    assert made.json() == {"name": "carol", "tiers": ["silver", "gold"]}
    assert operator.get("/v1/users/carol").json() == made.json()
    assert made.json() in operator.get("/v1/users").json()["items"]
    token = operator.post("/v1/users/carol/tokens")
    assert (token.status_code, token.headers["cache-control"]) == (201, "no-store")
    carol = service.client(token.json()["token"])
    job = carol.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()
    assert (job["user"], job["tier"]) == ("carol", "silver")


def test_a_token_may_be_an_operators(service: Service) -> None:
    operator = service.operator()
    operator.put("/v1/users/dave", json={"tiers": ["gold"]})
    token = operator.post("/v1/users/dave/tokens", json={"scope": "operator"}).json()["token"]
    assert service.client(token).get("/v1/users").status_code == 200
    assert operator.post("/v1/users/dave/tokens", json={"scope": "job"}).status_code == 422


def test_users_of_unknown_tiers_and_tokens_of_unknown_users_are_refused(service: Service) -> None:
    operator = service.operator()
    answer = operator.put("/v1/users/erin", json={"tiers": ["gold", "platinum"]})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "tiers.1")
    assert operator.put("/v1/users/erin", json={"tiers": []}).status_code == 422
    assert operator.get("/v1/users/erin").status_code == 404
    assert operator.post("/v1/users/erin/tokens").status_code == 404


def test_tiers_below_a_tier_share_what_it_is_promised(service: Service) -> None:
    operator = service.operator()
    assert put(operator, "department", guarantee=0.25).status_code == 201
    made = put(operator, "team-a", guarantee=0.2, parent="department")
    assert (made.status_code, made.json()["parent"]) == (201, "department")
    beyond = put(operator, "team-b", guarantee=0.1, parent="department")
    assert beyond.status_code == 422 and "at most 0.05 is left" in beyond.json()["detail"]
    lowered = operator.put("/v1/tiers/department", json={"guarantee": 0.1}, headers={"If-Match": "*"})
    assert lowered.status_code == 422 and "tiers below are promised 0.2" in lowered.json()["detail"]
    assert put(operator, "team-c", parent="nowhere").status_code == 422
    round_ = operator.put("/v1/tiers/department", json={"parent": "team-a"}, headers={"If-Match": "*"})
    assert round_.status_code == 422
    assert operator.put("/v1/tiers/team-a", json={}, headers={"If-Match": "*"}).status_code == 200
    assert operator.put("/v1/tiers/department", json={}, headers={"If-Match": "*"}).status_code == 200
