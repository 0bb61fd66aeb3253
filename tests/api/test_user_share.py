"""What one user may have open at a time: enough for work, and never all there is."""

from contextlib import ExitStack

import httpx
import pytest
from fastapi_problem.error import Problem

from api import what_if
from api.access.user_share import UserShare
from api.routes import live, logs
from gavel.types import Identity, Scope
from tests.api.conftest import Service, wait_until
from tests.api.test_live import Following
from tests.api.test_logs import submit

ANN = Identity(user="ann", scope=Scope.USER)
BOB = Identity(user="bob", scope=Scope.USER)
OPERATOR = Identity(user="op", scope=Scope.OPERATOR)


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 429 and int(answer.headers["retry-after"]) > 0


def test_a_share_is_each_user_s_own_and_comes_back() -> None:
    share = UserShare(1, "followed logs")
    with (
        share.held(ANN),
        share.held(BOB),
        share.held(OPERATOR),
        share.held(OPERATOR),
        pytest.raises(Problem, match="A limit of yours"),
    ):
        share.check(ANN)
    share.check(ANN)


def test_followed_logs_are_bounded_for_each_user(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "of_user", UserShare(1, "followed logs"))
    ann, job_id = submit(service, b"x")
    path = f"/v1/jobs/{job_id}/logs?follow=true"
    with ann.stream("GET", path) as answer:
        lines = answer.iter_lines()  # kept: without it the answer is closed
        next(lines)
        assert refused(ann.get(path))
    wait_until(lambda: not logs.of_user._open)


def test_event_streams_are_bounded_for_each_user(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "of_user", UserShare(1, "event streams"))
    _, ann = service.user()
    _, bob = service.user()
    with Following(ann) as stream:
        next(stream)
        assert refused(ann.get("/v1/watch"))
        with Following(bob) as other:
            next(other)


def test_one_user_never_has_every_process_that_answers_what_ifs(service: Service) -> None:
    name, ann = service.user()
    with ExitStack() as held:
        held.enter_context(what_if.of_user.held(Identity(user=name, scope=Scope.USER)))
        assert refused(ann.post("/v1/what-if", json={}))
    assert what_if.of_user._most < what_if.AT_ONCE
