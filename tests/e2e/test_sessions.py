"""An interactive session with real processes: reached through the service by its user only, ended by its time."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gavel.client import Client, GavelApiError
from gavel.demo.service import ServiceProcess, wait_until

LIMIT_S = 60
SETTINGS = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "1"}
# Echoes what is sent to its first port, serves files at the second, and prints both.
PROGRAM = """
import http.server, socketserver, threading, time
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while chunk := self.request.recv(65536):
            self.request.sendall(chunk)
socketserver.ThreadingTCPServer.daemon_threads = True
echo = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=echo.serve_forever, daemon=True).start()
print("ports", echo.server_address[1], files.server_address[1], flush=True)
files.serve_forever()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service") / "state"
    with ServiceProcess(folder, SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        client.put_user("ann", tiers=["default"])
        client.put_user("bob", tiers=["default"])
        yield running


@pytest.fixture(scope="module")
def operator(running: ServiceProcess) -> Iterator[Client]:
    with Client(running.url, running.operator_token) as client:
        yield client


@contextmanager
def session(client: Client, program: str = PROGRAM, **fields: Any) -> Iterator[tuple[str, list[int]]]:
    """A session that has printed its ports; it is cancelled at the end."""
    job_id = client.submit(argv=[sys.executable, "-u", "-c", program], mode="interactive", **fields)["id"]
    try:
        assert wait_until(lambda: "ports" in client.logs(job_id)[0], LIMIT_S), client.job(job_id)["message"]
        ports = re.search(r"ports ([\d ]+)", client.logs(job_id)[0])
        assert ports
        yield job_id, [int(each) for each in ports[1].split()]
    finally:
        client.cancel(job_id)
        assert wait_until(lambda: client.job(job_id)["state"] in ("CANCELLED", "COMPLETED"), LIMIT_S)


def opened(running: ServiceProcess, job_id: str, port: int, token: str | None = None) -> ClientConnection:
    address = f"{running.url.replace('http', 'ws', 1)}/v1/jobs/{job_id}/ports/{port}"
    token = running.operator_token if token is None else token
    return connect(address, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None)


def refusal(running: ServiceProcess, job_id: str, port: int, token: str | None = None) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        opened(running, job_id, port, token)
    response = refused.value.response
    return response.status_code, (response.body or b"").decode()


def echoed(connection: ClientConnection, sent: bytes) -> bytes:
    """What comes back of what is sent, as one text."""
    threading.Thread(
        target=lambda: [connection.send(sent[at : at + 65536]) for at in range(0, len(sent), 65536)], daemon=True
    ).start()
    back = b""
    while len(back) < len(sent):
        chunk = connection.recv(timeout=LIMIT_S)
        back += chunk if isinstance(chunk, bytes) else chunk.encode()
    return back


@pytest.mark.timeout(300)
def test_its_user_reaches_its_ports_and_nobody_reaches_anything_else(
    running: ServiceProcess, operator: Client
) -> None:
    ann, bob = (operator.create_token(name) for name in ("ann", "bob"))
    with Client(running.url, ann) as user, session(user, longest_s=600, idle_s=300) as (job_id, (echo, files)):
        with opened(running, job_id, echo, ann) as connection, opened(running, job_id, echo) as other:
            assert echoed(connection, b"hello") == b"hello"
            assert echoed(other, b"operators, too") == b"operators, too"
            sent = os.urandom(3 << 20)
            assert echoed(connection, sent) == sent
            connection.send(b"")  # no more comes: the program ends its part, then the service
            with pytest.raises(Exception, match="1000"):
                connection.recv(timeout=LIMIT_S)
        assert refusal(running, job_id, echo, "no-token")[0] == 401
        assert refusal(running, job_id, echo, bob)[0] == 404
        assert "nothing listens on port 1 yet" in refusal(running, job_id, 1, ann)[1]
        own = int(running.url.rpartition(":")[2])
        assert "not the job's" in refusal(running, job_id, own, ann)[1]  # the service's own API
        with socket.create_server(("127.0.0.1", 0)) as foreign:
            status, body = refusal(running, job_id, foreign.getsockname()[1], ann)
            assert (status, "not the job's" in body) == (409, True)
        with socket.socket() as beside:  # the port of the job, on another address of this machine
            beside.bind(("127.0.0.2", files))
            beside.listen()
            assert "not the job's" in refusal(running, job_id, files, ann)[1]
        with opened(running, job_id, files, ann) as page:
            page.send(b"GET / HTTP/1.0\r\n\r\n")
            assert b"200 OK" in page.recv(timeout=LIMIT_S)  # type: ignore[operator]
    status, body = refusal(running, job_id, echo, ann)
    assert (status, "does not run" in body) == (409, True)
