"""An interactive session with real processes: reached through the service by its user only, ended by its time."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
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


def ports_of(client: Client, job_id: str) -> list[int]:
    """The ports that the program has printed, once it has."""
    assert wait_until(lambda: "ports" in client.logs(job_id)[0], LIMIT_S), client.job(job_id)["message"]
    ports = re.search(r"ports ([\d ]+)", client.logs(job_id)[0])
    assert ports
    return [int(each) for each in ports[1].split()]


@contextmanager
def session(client: Client, program: str = PROGRAM, **fields: Any) -> Iterator[tuple[str, list[int]]]:
    """A session that has printed its ports; it is cancelled at the end."""
    job_id = client.submit(argv=[sys.executable, "-u", "-c", program], mode="interactive", **fields)["id"]
    try:
        yield job_id, ports_of(client, job_id)
    finally:
        with suppress(GavelApiError):  # it has ended by itself
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


def sent_until_closed(connection: ClientConnection) -> None:
    with suppress(ConnectionClosed):
        while True:
            connection.send(bytes(65536))


@pytest.mark.timeout(300)
def test_its_user_reaches_its_ports_and_nobody_reaches_anything_else(running: ServiceProcess, operator: Client) -> None:
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
        with socket.socket() as elsewhere:  # the port of the job, on another address of this machine
            elsewhere.bind(("127.0.0.2", files))
            elsewhere.listen()
            assert "not the job's" in refusal(running, job_id, files, ann)[1]
        with opened(running, job_id, echo, ann) as slow, opened(running, job_id, echo, ann) as other:
            sending = threading.Thread(target=sent_until_closed, args=(slow,), daemon=True)
            sending.start()
            sending.join(2.0)  # it sends more than anybody takes, since it reads nothing
            assert sending.is_alive()
            assert user.job(job_id)["state"] == "RUNNING"
            assert echoed(other, sent) == sent
            slow.socket.shutdown(socket.SHUT_RDWR)  # a close in order would wait for the sender
        with opened(running, job_id, files, ann) as page:
            page.send(b"GET / HTTP/1.0\r\n\r\n")
            assert b"200 OK" in page.recv(timeout=LIMIT_S)  # type: ignore[operator]
    status, body = refusal(running, job_id, echo, ann)
    assert (status, "does not run" in body) == (409, True)


@contextmanager
def command(running: ServiceProcess, *words: str, lines: int) -> Iterator[list[str]]:
    """A command of `gavel` that runs on; the first lines that it printed. It is interrupted at the end."""
    options = ("--url", running.url, "--token", running.operator_token)
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "gavel.cli", *options, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield [process.stdout.readline() for _ in range(lines)]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) in (0, 130)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_it_ends_when_its_time_is_over_and_sooner_if_nobody_uses_it(running: ServiceProcess, operator: Client) -> None:
    timed_one, idle_one = session(operator, longest_s=60), session(operator, longest_s=600, idle_s=30)
    with timed_one as (timed, _), idle_one as (idle, ports):
        with opened(running, idle, ports[0]):
            assert wait_until(lambda: operator.job(timed)["state"] == "COMPLETED", 120)
            assert operator.job(idle)["state"] == "RUNNING"  # somebody is connected
        assert "60 s that it was granted" in operator.job(timed)["message"]
        assert wait_until(lambda: operator.job(idle)["state"] == "COMPLETED", 120)
        assert "Nobody was connected" in operator.job(idle)["message"]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_command_line_reaches_it_and_a_restart_changes_nothing(running: ServiceProcess) -> None:
    program = (sys.executable, "-u", "-c", PROGRAM)
    with command(running, "interactive", "--name", "s", "--forward", "1:0", *program, lines=1) as (line,):
        with Client(running.url, running.operator_token) as client:
            (job,) = client.jobs(match="s")
            _, files = ports_of(client, job["id"])
        assert f"is port 1 of job {job['id']}" in line
        assert line.startswith("http://localhost:"), "browsers would send it the cookie of the dashboard at 127.0.0.1"
    with command(running, "port-forward", "s", f"{files}:0", lines=1) as (line,):
        assert httpx.get(line.split()[0], timeout=30, trust_env=False).status_code == 200
    with Client(running.url, running.operator_token) as client:
        ends_at_s = client.job(job["id"])["session_ends_at_s"]
        assert ends_at_s
    running.kill()
    assert not wait_until(lambda: False, 6.0)  # longer than a round and its grace
    running.start()
    with Client(running.url, running.operator_token) as client:
        assert wait_until(client.is_alive, LIMIT_S)
        now = client.job(job["id"])
        assert (now["state"], now["generation"], now["session_ends_at_s"]) == ("RUNNING", 1, ends_at_s), now["message"]
        with command(running, "port-forward", "s", f"{files}:0", lines=1) as (line,):
            assert httpx.get(line.split()[0], timeout=30, trust_env=False).status_code == 200
        assert client.extend_session(job["id"], by_s=3600)["longest_s"] == 5 * 3600
        client.cancel(job["id"])
        assert wait_until(lambda: client.job(job["id"])["state"] == "CANCELLED", LIMIT_S)
