"""The agent's part of a tunnel: nothing of it is left open when the agent ends."""

import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from websockets.http11 import Request
from websockets.protocol import Event
from websockets.server import ServerProtocol

from gavel.backends.nodes.tunnel_carrier import TunnelCarrier
from gavel.backends.nodes.tunnels import TunnelWanted

LIMIT_S = 30.0


@contextmanager
def a_service() -> Iterator[socket.socket]:
    """A listener that plays the service."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        yield listener


def a_tunnel_to(listener: socket.socket) -> TunnelWanted:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    return TunnelWanted(id="t1", key="k", url=url, certificates="", job_id="job", generation=1, port=80, until_s=1e12)


def accepted(listener: socket.socket) -> tuple[socket.socket, ServerProtocol]:
    """A WebSocket of an agent, taken by a service that says nothing more."""
    there, _ = listener.accept()
    there.settimeout(LIMIT_S)
    protocol = ServerProtocol()
    (request,) = heard(there, protocol)
    assert isinstance(request, Request)
    protocol.send_response(protocol.accept(request))
    for part in protocol.data_to_send():
        there.sendall(part)
    return there, protocol


def heard(there: socket.socket, protocol: ServerProtocol) -> list[Event]:
    """What the agent says next, once it says something."""
    while not (events := protocol.events_received()):
        protocol.receive_data(there.recv(1 << 16))
    return events


def test_a_tunnel_that_waits_for_the_service_to_say_good_bye_ends_with_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 the node has no such job and says so, 2 the service never answers the end, 3 the agent ends meanwhile."""
    left_open: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: left_open.append(each.exc_value))
    with a_service() as listener:
        carrier = TunnelCarrier(tmp_path)
        carrier.take((a_tunnel_to(listener),))
        there, protocol = accepted(listener)
        with there:
            while protocol.close_rcvd is None:
                heard(there, protocol)
            carrier.close()
    del carrier
    gc.collect()
    assert left_open == []


def test_what_a_program_has_not_read_yet_keeps_no_tunnel_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 the service sends more than a program that reads nothing takes, 2 the agent ends meanwhile."""
    left_open: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: left_open.append(each.exc_value))
    ours, theirs = socket.socketpair()
    monkeypatch.setattr("gavel.backends.nodes.tunnel_carrier.opened", lambda *_: theirs)
    with a_service() as listener, ours:
        carrier = TunnelCarrier(tmp_path)
        carrier.take((a_tunnel_to(listener),))
        there, protocol = accepted(listener)
        with there:
            heard(there, protocol)
            send(there, protocol, bytes(8 << 20))
            ours.recv(1)
            carrier.close()
    del carrier
    gc.collect()
    assert left_open == []


def send(there: socket.socket, protocol: ServerProtocol, message: bytes) -> None:
    """Send as much of a message, in parts, as the agent takes."""
    for start in range(0, len(message), 1 << 16):
        protocol.send_binary(message[start : start + (1 << 16)])
    there.settimeout(0.2)
    with suppress(TimeoutError):
        for part in protocol.data_to_send():
            there.sendall(part)
