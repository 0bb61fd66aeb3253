"""Who may open a port of a job, and when; what is behind it is in tests/backends/test_job_ports.py."""

from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from api.access.user_share import UserShare
from api.routes import ports
from gavel.types import JobState, Scope
from gavel.types.copying import changed
from tests.api.conftest import NOW_S, Service, wait_until
from tests.api.test_submit import PROGRAM
from tests.backends.test_job_ports import a_gang


def opened(service: Service, job_id: str, port: Any, headers: dict[str, str]) -> ClientConnection:
    url = f"{service.url.replace('http', 'ws', 1)}/v1/jobs/{job_id}/ports/{port}"
    return connect(url, additional_headers=headers, proxy=None)


def refused(service: Service, job_id: str, port: Any, token: str = "", **headers: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as error:
        opened(service, job_id, port, ({"Authorization": f"Bearer {token}"} if token else {}) | headers)
    return error.value.response.status_code, bytes(error.value.response.body or b"").decode()


def a_running_job(service: Service, generation: int = 1) -> tuple[str, str]:
    """Its id, and a token of its user."""
    name, ann = service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    service.change(changed(service.store.job(job_id), state=JobState.LEASED, generation=generation))
    return job_id, service.token(name)


def test_only_a_token_of_its_user_or_an_operator_opens_it(service: Service) -> None:
    job_id, token = a_running_job(service)
    bob, _ = service.user()
    assert refused(service, job_id, 80)[0] == 401
    assert refused(service, job_id, 80, "gavel_nothing")[0] == 401
    assert refused(service, job_id, 80, Cookie=f"gavel_session={token}")[0] == 401
    assert refused(service, job_id, 80, service.token("eve", Scope.VIEWER))[0] == 401
    assert refused(service, job_id, 80, service.token(bob, Scope.JOB, job_id))[0] == 401
    assert refused(service, job_id, 80, service.token(bob))[0] == 404
    assert refused(service, "0000000000000000", 80, token)[0] == 404
    for allowed in (token, service.token("operator", Scope.OPERATOR)):  # there is no gang behind it
        status, body = refused(service, job_id, 80, allowed)
        assert (status, "no process of the job runs" in body) == (409, True)


def test_it_opens_only_while_the_job_runs(service: Service) -> None:
    job_id, token = a_running_job(service)
    for over in ({"state": JobState.QUEUED}, {"over": "Its time is over."}, {"state": JobState.COMPLETED}):
        service.change(changed(service.store.job(job_id), **{"state": JobState.LEASED, **over}))
        status, body = refused(service, job_id, 80, token)
        assert (status, "does not run" in body) == (409, True)


def test_a_port_is_a_number_and_the_service_has_its_own_names(start: Callable[..., Service]) -> None:
    service = start(allowed_hosts="gavel.example")
    job_id, token = a_running_job(service)
    for port in (0, 65536, "x"):
        assert refused(service, job_id, port, token)[0] == 403
    asks = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    asks |= {"Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==", "Host": "evil.example"}
    assert service.client(token).get(f"/v1/jobs/{job_id}/ports/80", headers=asks).status_code == 400


def test_a_simulated_backend_says_that_it_runs_nothing(start: Callable[..., Service]) -> None:
    service = start(backend="simulated")
    job_id, token = a_running_job(service)
    status, body = refused(service, job_id, 80, token)
    assert (status, "run no program" in body) == (409, True)


def test_each_user_has_a_bounded_number_of_connections(
    start: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "of_user", UserShare(1, "connections to ports of jobs"))
    service = start()
    job_id, token = a_running_job(service)
    bearer = {"Authorization": f"Bearer {token}"}
    with a_gang(service.settings.state_dir, job_id, stays="yes") as port:
        with opened(service, job_id, port, bearer) as first:
            assert first.recv(timeout=30) == b"of the gang"
            status, body = refused(service, job_id, port, token)
            assert (status, "you have 1 connections" in body) == (429, True)
        wait_until(lambda: not ports.of_user._open)
        with opened(service, job_id, port, bearer) as again:
            assert again.recv(timeout=30) == b"of the gang"


def test_a_connection_ends_when_its_token_is_revoked(
    start: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "LOOK_AGAIN_S", 0.05)
    service = start()
    name, ann = service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    service.change(changed(service.store.job(job_id), state=JobState.LEASED, generation=1))
    token = service.token(name)
    bearer = {"Authorization": f"Bearer {token}"}
    with (
        a_gang(service.settings.state_dir, job_id, stays="yes") as port,
        opened(service, job_id, port, bearer) as connection,
    ):
        assert connection.recv(timeout=30) == b"of the gang"
        for each in service.store.tokens(name):
            service.store.revoke_token(name, each.id, by="test", now_s=NOW_S)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=30)
