"""Bearer tokens are listed without their secrets, and revoked."""

from contextlib import ExitStack

import pytest

from api.live import streams
from gavel.types import Scope
from tests.api.conftest import Service
from tests.api.test_live import Following, submit


def made(service: Service, user: str) -> tuple[str, str]:
    """A new token of a user, and its id."""
    operator = service.operator()
    operator.put(f"/v1/users/{user}", json={"tiers": ["gold"]})
    before = {each["id"] for each in operator.get(f"/v1/users/{user}/tokens").json()["items"]}
    token = operator.post(f"/v1/users/{user}/tokens").json()["token"]
    (new,) = {each["id"] for each in operator.get(f"/v1/users/{user}/tokens").json()["items"]} - before
    return token, new


def test_a_token_is_taken_back_and_opens_nothing_from_then_on(service: Service) -> None:
    operator = service.operator()
    (lost, lost_id), (kept, kept_id) = made(service, "fred"), made(service, "fred")
    assert service.client(lost).get("/v1/jobs").status_code == 200
    held = operator.get("/v1/users/fred/tokens").text
    assert kept not in held and lost not in held
    left = operator.delete(f"/v1/users/fred/tokens/{lost_id}")
    assert left.status_code == 200 and [each["id"] for each in left.json()["items"]] == [kept_id]
    assert [service.client(token).get("/v1/jobs").status_code for token in (lost, kept)] == [401, 200]
    newest = operator.get("/v1/audit", params={"subject": "user/fred"}).json()["items"][0]
    assert (newest["action"], newest["before"]) == ("token.revoked", {"id": lost_id, "scope": "user"})


def test_tokens_of_jobs_are_listed_with_their_jobs(service: Service) -> None:
    token, token_id = made(service, "kim")
    job_id = submit(service.client(token))
    service.token("kim", Scope.JOB, job_id)
    held = service.operator().get("/v1/users/kim/tokens").json()["items"]
    assert sorted((each["scope"], each["job_id"]) for each in held) == [("job", job_id), ("user", None)]
    assert token_id in {each["id"] for each in held}


def test_a_token_that_is_taken_back_hears_nothing_more(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_AGAIN_S", 0.0)
    (lost, lost_id), (kept, _) = made(service, "ivy"), made(service, "ivy")
    ivy = service.client(kept)
    with Following(service.client(lost)) as gone, Following(ivy) as stream:
        assert next(gone)["event"] == "hello" and next(stream)["event"] == "hello"
        service.operator().delete(f"/v1/users/ivy/tokens/{lost_id}")
        job_id = submit(ivy)
        assert job_id in next(stream)["data"]
        assert list(gone) == []


def test_streams_of_a_token_that_is_taken_back_end_though_nothing_happens(service: Service) -> None:
    (lost, lost_id), (kept, _) = made(service, "jane"), made(service, "jane")
    job_id = submit(service.client(kept))
    (service.logs / job_id).write_bytes(b"begun\n")
    paths = ("/v1/watch", f"/v1/jobs/{job_id}/logs?follow=true")
    with service.client(lost) as mine, service.client(kept) as other, ExitStack() as opened:
        ending = [opened.enter_context(mine.stream("GET", path)).iter_bytes() for path in paths]
        staying = [opened.enter_context(other.stream("GET", path)).iter_bytes() for path in paths]
        for stream in (*ending, *staying):
            assert b"event: " in next(stream)
        service.operator().delete(f"/v1/users/jane/tokens/{lost_id}")
        for stream in ending:
            list(stream)  # to its end
        (service.logs / job_id).write_bytes(b"begun\nwent on\n")
        assert b"went on" in next(staying[1])
        submit(other)
        assert b"event: job" in next(staying[0])


def test_a_token_of_another_user_or_of_none_is_not_found(service: Service) -> None:
    operator = service.operator()
    for user in ("greta", "hugo"):
        operator.put(f"/v1/users/{user}", json={"tiers": ["gold"]})
    operator.post("/v1/users/greta/tokens")
    (held,) = operator.get("/v1/users/greta/tokens").json()["items"]
    assert operator.delete(f"/v1/users/hugo/tokens/{held['id']}").status_code == 404
    assert operator.delete("/v1/users/greta/tokens/0123456789abcdef").status_code == 404
    assert operator.delete("/v1/users/greta/tokens/xyz").status_code == 422
    assert operator.get("/v1/users/nobody/tokens").status_code == 404
    assert operator.get("/v1/users/hugo/tokens").json() == {"items": []}
