"""Who may attach to the terminal of a job; the terminal itself is in tests/backends/test_job_terminal.py."""

from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from api.routes import ports
from gavel.types import JobState, Scope
from gavel.types.copying import changed
from gavel_runtime.terminal_frames import EXIT, TYPED, Frames, frame
from tests.api.conftest import NOW_S, Service
from tests.api.test_ports import a_running_job
from tests.backends.test_job_terminal import a_terminal


def opened(service: Service, job_id: str, token: str, **headers: str) -> ClientConnection:
    url = f"{service.url.replace('http', 'ws', 1)}/v1/jobs/{job_id}/terminal"
    own = {"Authorization": f"Bearer {token}"} if token else {}
    return connect(url, additional_headers=own | headers, proxy=None)


def refused(service: Service, job_id: str, token: str = "", **headers: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as error:
        opened(service, job_id, token, **headers)
    return error.value.response.status_code, bytes(error.value.response.body or b"").decode()


def printed_by(connection: ClientConnection, until: Any) -> tuple[bytes, int | None]:
    """What was printed, until `until` is in it or the shell has ended; its exit status."""
    frames, printed = Frames(), b""
    while until not in printed:
        message = connection.recv(timeout=30)
        for tag, payload in frames.of(message if isinstance(message, bytes) else message.encode()):
            if tag == EXIT:
                return printed, payload[0]
            printed += payload
    return printed, None


def test_only_a_token_of_its_user_or_an_operator_attaches(service: Service) -> None:
    job_id, token = a_running_job(service)
    bob, _ = service.user()
    with a_terminal(service.settings.state_dir, job_id):
        assert refused(service, job_id)[0] == 401
        assert refused(service, job_id, "gavel_nothing")[0] == 401
        assert refused(service, job_id, Cookie=f"gavel_session={token}")[0] == 401
        assert refused(service, job_id, service.token("eve", Scope.VIEWER))[0] == 401
        assert refused(service, job_id, service.token(bob, Scope.JOB, job_id))[0] == 401
        assert refused(service, job_id, service.token(bob))[0] == 404
        assert refused(service, "0000000000000000", token)[0] == 404
        for allowed in (token, service.token("operator", Scope.OPERATOR)):
            with opened(service, job_id, allowed) as connection:
                connection.send(frame(TYPED, b"echo $((40 + 2))\n"))
                assert b"42\r\n" in printed_by(connection, b"42\r\n")[0]
        with opened(service, job_id, token) as connection:
            connection.send(frame(TYPED, b"exit 7\n"))
            assert printed_by(connection, b"never printed")[1] == 7


def test_a_job_without_a_terminal_or_that_does_not_run_is_refused_with_what_to_do(service: Service) -> None:
    job_id, token = a_running_job(service)
    status, body = refused(service, job_id, token)
    assert (status, "gavel interactive --shell" in body) == (404, True)
    service.change(changed(service.store.job(job_id), state=JobState.QUEUED))
    status, body = refused(service, job_id, token)
    assert (status, "does not run" in body) == (409, True)


def test_a_revoked_token_is_cut_off_and_the_shell_goes_on(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOOK_AGAIN_S", 0.05)
    job_id, token = a_running_job(service)
    user = service.store.job(job_id).spec.user
    with a_terminal(service.settings.state_dir, job_id):
        with opened(service, job_id, token) as connection:
            connection.send(frame(TYPED, b"kept=42; echo it is $kept\n"))
            printed_by(connection, b"it is 42")
            for each in service.store.tokens(user):
                service.store.revoke_token(user, each.id, by="test", now_s=NOW_S)
            with pytest.raises(ConnectionClosed):
                printed_by(connection, b"never printed")
        with opened(service, job_id, service.token(user)) as again:
            again.send(frame(TYPED, b"echo still $kept\n"))
            printed_by(again, b"still 42")
