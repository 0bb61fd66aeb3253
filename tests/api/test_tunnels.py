"""Ports and terminals of jobs whose node connects to the service: who reaches them, and what an agent may do."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from api.live import tunnels
from api.routes import ports
from gavel.backends.nodes.connection import Access, ConnectedBox
from gavel.backends.nodes.letters import Box, PostBox
from gavel.backends.nodes.protocol import Group
from gavel.backends.nodes.tunnel_carrier import TunnelCarrier
from gavel.backends.nodes.tunnel_requests import bridge_box
from gavel.backends.nodes.tunnels import TunnelFile, TunnelWanted, read_tunnels, tunnels_of
from gavel.types import JobState, Scope
from gavel.types.copying import changed
from gavel_runtime.terminal_frames import TYPED, frame
from tests.api.conftest import NOW_S, Service, wait_until
from tests.api.test_ports import a_running_job, opened, refused
from tests.api.test_submit import PROGRAM
from tests.api.test_terminals import opened as attached
from tests.api.test_terminals import printed_by
from tests.api.test_terminals import refused as not_attached
from tests.backends.connected import an_allocation, an_api
from tests.backends.test_job_ports import a_gang
from tests.backends.test_job_terminal import a_terminal


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with an_api(tmp_path_factory.mktemp("api")) as made:
        yield made


def group_of(job_id: str) -> Group:
    return Group(name=f"gavel/{job_id}/1", bundles=(("n0", "gpu", 1),))


@contextmanager
def carrying(box: Box, node_dir: Path) -> Iterator[list[TunnelWanted]]:
    """The part of an agent that carries tunnels; all that were wanted of it."""
    is_over, seen = threading.Event(), dict[str, TunnelWanted]()
    asked: list[TunnelWanted] = []

    def carry() -> None:
        with closing(TunnelCarrier(node_dir)) as carrier:
            while not is_over.wait(0.02):
                asked.extend(each for each in box.tunnels() if each.id not in seen)
                seen.update({each.id: each for each in box.tunnels()})
                carrier.take(box.tunnels())

    thread = threading.Thread(target=carry)
    thread.start()
    try:
        yield asked
    finally:
        is_over.set()
        thread.join(10.0)


@contextmanager
def an_agent(api: Service, job_id: str, node_dir: Path) -> Iterator[list[TunnelWanted]]:
    """The agent of gang 1 of the job, on a node that sees no folder of the service."""
    _, access = an_allocation(api, group_of(job_id))
    with closing(ConnectedBox(access)) as box, carrying(box, node_dir) as asked:
        yield asked


def test_only_a_token_of_its_user_or_an_operator_reaches_a_port_on_a_node(api: Service, tmp_path: Path) -> None:
    """1 all others are refused before a node is asked, 2 those two reach the program, which is on the agent's node."""
    job_id, token = a_running_job(api)
    bob, _ = api.user()
    with an_agent(api, job_id, tmp_path) as asked, a_gang(tmp_path, job_id) as port:
        assert refused(api, job_id, port)[0] == 401
        assert refused(api, job_id, port, Cookie=f"gavel_session={token}")[0] == 401
        assert refused(api, job_id, port, api.token("eve", Scope.VIEWER))[0] == 401
        assert refused(api, job_id, port, api.token(bob, Scope.JOB, job_id))[0] == 401
        assert refused(api, job_id, port, api.token(bob))[0] == 404
        assert not asked
        for allowed in (token, api.token("operator", Scope.OPERATOR)):
            with opened(api, job_id, port, {"Authorization": f"Bearer {allowed}"}) as connection:
                assert connection.recv(timeout=30) == b"of the gang"
        assert [each.job_id for each in asked] == [job_id] * 2


def test_only_ports_of_the_job_are_reached(api: Service, tmp_path: Path) -> None:
    """1 a port of another gang of the node, 2 one that nobody listens on: each is said, as on the local backend."""
    job_id, token = a_running_job(api)
    with an_agent(api, job_id, tmp_path), a_gang(tmp_path, job_id) as own, a_gang(tmp_path / "other") as foreign:
        status, body = refused(api, job_id, foreign, token)
        assert (status, "not the job's" in body) == (409, True)
        status, body = refused(api, job_id, 9, token)
        assert (status, "nothing listens" in body) == (409, True)
        with opened(api, job_id, own, {"Authorization": f"Bearer {token}"}) as connection:
            assert connection.recv(timeout=30) == b"of the gang"


def test_a_terminal_on_a_node_is_attached_to(api: Service, tmp_path: Path) -> None:
    job_id, token = a_running_job(api)
    with an_agent(api, job_id, tmp_path), a_terminal(tmp_path, job_id):  # it outlasts who attaches
        with attached(api, job_id, token) as connection:
            connection.send(frame(TYPED, b"seen=42; echo it is $seen\n"))
            assert b"it is 42\r\n" in printed_by(connection, b"it is 42\r\n")[0]
        with attached(api, job_id, token) as again:
            again.send(frame(TYPED, b"echo still $seen; exit 7\n"))
            assert printed_by(again, b"never printed")[1] == 7


def test_a_job_on_a_node_that_has_no_terminal_says_how_to_get_one(api: Service, tmp_path: Path) -> None:
    job_id, token = a_running_job(api)
    with an_agent(api, job_id, tmp_path), a_gang(tmp_path, job_id):
        status, body = not_attached(api, job_id, token)
        assert (status, "gavel interactive --shell" in body) == (404, True)


ECHO = """
import socket, sys
with socket.socket() as listener:
    listener.bind((sys.argv[1], 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    with listener.accept()[0] as there:
        got = b"".join(iter(lambda: there.recv(1 << 16), b""))
        there.sendall(got[::-1])
"""


def test_many_bytes_go_both_ways_and_the_end_of_one_way_is_told(
    api: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program answers once its caller has said that no more comes."""
    monkeypatch.setattr("tests.backends.test_job_ports.LISTENS", ECHO)
    job_id, token = a_running_job(api)
    sent = bytes(range(256)) * (1 << 13)
    with (
        an_agent(api, job_id, tmp_path),
        a_gang(tmp_path, job_id) as port,
        opened(api, job_id, port, {"Authorization": f"Bearer {token}"}) as connection,
    ):
        for start in range(0, len(sent), 1 << 19):
            connection.send(sent[start : start + (1 << 19)])
        connection.send(b"")
        got = b""
        while len(got) < len(sent):
            message = connection.recv(timeout=30)
            got += message if isinstance(message, bytes) else b""
        assert got == sent[::-1]
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=30)


def test_a_tunnel_ends_when_the_token_is_revoked(api: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOOK_AGAIN_S", 0.05)
    name, ann = api.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    api.change(changed(api.store.job(job_id), state=JobState.LEASED, generation=1))
    token = api.token(name)
    with (
        an_agent(api, job_id, tmp_path),
        a_gang(tmp_path, job_id, stays="yes") as port,
        opened(api, job_id, port, {"Authorization": f"Bearer {token}"}) as connection,
    ):
        assert connection.recv(timeout=30) == b"of the gang"
        for each in api.store.tokens(name):
            api.store.revoke_token(name, each.id, by="test", now_s=NOW_S)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=30)


def test_a_node_that_does_not_connect_is_said_and_its_request_goes(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "LIMIT_S", 0.3)
    job_id, token = a_running_job(api)
    made, _ = an_allocation(api, group_of(job_id))
    status, body = refused(api, job_id, 80, token)
    assert (status, "did not connect" in body, "public_url" in body) == (409, True, True)
    assert tunnels_of(read_tunnels(made.folder / "n0")) == ()


def test_a_job_whose_gang_has_no_allocation_yet_is_refused_at_once(api: Service) -> None:
    job_id, token = a_running_job(api)
    status, body = refused(api, job_id, 80, token)
    assert (status, "no node yet" in body) == (409, True)


def stolen(api: Service, tunnel_id: str, key: str) -> int:
    with pytest.raises(InvalidStatus) as error:
        connect(
            f"{api.url.replace('http', 'ws', 1)}/v1/tunnels/{tunnel_id}",
            additional_headers={"Authorization": f"Bearer {key}"},
            proxy=None,
        )
    return error.value.response.status_code


def test_only_the_key_of_a_tunnel_opens_it_and_once(api: Service, tmp_path: Path) -> None:
    """1 no such tunnel, 2 a wrong key and a user's token, 3 the right key while it is used, 4 when it is over."""
    job_id, token = a_running_job(api)
    assert stolen(api, "0" * 32, "") == 404
    with an_agent(api, job_id, tmp_path) as asked, a_gang(tmp_path, job_id, stays="yes") as port:
        with opened(api, job_id, port, {"Authorization": f"Bearer {token}"}) as connection:
            assert connection.recv(timeout=30) == b"of the gang"
            (wanted,) = asked
            assert [stolen(api, wanted.id, key) for key in ("", token, wanted.key)] == [404] * 3
        wait_until(lambda: stolen(api, wanted.id, wanted.key) == 404)


def test_an_agent_is_asked_only_for_gangs_of_its_own_allocation(api: Service, tmp_path: Path) -> None:
    job_id, token = a_running_job(api)
    with an_agent(api, "other", tmp_path) as others, an_agent(api, job_id, tmp_path) as asked:
        with a_gang(tmp_path, job_id) as port, opened(api, job_id, port, {"Authorization": f"Bearer {token}"}) as there:
            assert there.recv(timeout=30) == b"of the gang"
        assert (len(asked), others) == (1, [])


def test_agents_that_read_their_orders_in_files_connect_to_the_service_as_well(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    """Without a public address they are told the one at which the caller has reached the service."""
    shared = tmp_path / "shared"
    service = start(backend="slurm", slurm={"shared_dir": str(shared)})
    job_id, token = a_running_job(service)
    with an_api(tmp_path / "other") as other:
        made, _ = an_allocation(other, group_of(job_id))
        made.folder.parent.parent.rename(shared)
    (allocation,) = (shared / "allocations").iterdir()
    node_dir = tmp_path / "node"
    with (
        carrying(PostBox(allocation / "n0"), node_dir),
        a_gang(node_dir, job_id) as port,
        opened(service, job_id, port, {"Authorization": f"Bearer {token}"}) as connection,
    ):
        assert connection.recv(timeout=30) == b"of the gang"


def test_a_port_of_a_job_on_ray_is_reached_through_the_box_of_the_bridge(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    """1 no scheduler has made the box yet, 2 what plays bridge and agent reads it, 3 the program is reached."""
    service = start(backend="ray", ray_address="127.0.0.1:1")
    job_id, token = a_running_job(service)
    assert refused(service, job_id, 80, token)[0] == 409
    box = bridge_box(service.settings.state_dir)
    box.mkdir()

    class Bridged:
        def __init__(self) -> None:
            self.tunnels = TunnelFile(box).wanted

    with carrying(Bridged(), tmp_path / "node"), a_gang(tmp_path / "node", job_id) as port:  # type: ignore[arg-type]
        with opened(service, job_id, port, {"Authorization": f"Bearer {token}"}) as connection:
            assert connection.recv(timeout=30) == b"of the gang"
        wait_until(lambda: TunnelFile(box).wanted() == ())


def test_a_tunnel_goes_where_the_orders_come_from(api: Service, tmp_path: Path) -> None:
    """Whatever address the request names: that of the test's service does not answer."""
    assert api.settings.public_url == "http://127.0.0.1:9"
    job_id, token = a_running_job(api)
    with an_agent(api, job_id, tmp_path) as asked, a_gang(tmp_path, job_id) as port:
        with opened(api, job_id, port, {"Authorization": f"Bearer {token}"}) as connection:
            assert connection.recv(timeout=30) == b"of the gang"
        assert asked[0].url == api.url


def test_the_address_of_the_service_is_that_of_the_agent_s_connection() -> None:
    access = Access(url="https://gavel.example/base/v1/orders/j1.1.ab/n0", key="x")
    assert access.service == "https://gavel.example/base"
    assert replace(access, url="http://h:1/v1/orders/a/b").service == "http://h:1"
