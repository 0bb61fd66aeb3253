"""A service with real replicas for tests: its program, its endpoints, and requests that never pause."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from gavel.client import Client, GavelApiError
from gavel.client.answers import Endpoint
from gavel.demo.service import wait_until

LIMIT_S = 90
CHECK = {"path": "/ready", "interval_s": 0.2, "failures": 2}
# Answers its version; /sick makes it fail its checks; it ends its requests before it goes.
PROGRAM = """
import http.server, os, signal, sys, threading
sick = threading.Event()
count = [0]
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/sick":
            sick.set()
        if self.path == "/die":
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += self.path == "/"
        body = (f"asked_total {count[0]}" if self.path == "/metrics" else VERSION).encode()
        self.send_response(503 if sick.is_set() else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Answer)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
"""


def argv_of(version: str) -> list[str]:
    return [sys.executable, "-u", "-c", PROGRAM.replace("VERSION", repr(version)), "{GAVEL_REPLICA_PORT}"]


@contextmanager
def a_service(client: Client, **fields: Any) -> Iterator[str]:
    """A service all of whose replicas are ready; it is cancelled at the end, and its replicas end with it."""
    service = {"port": 0, "readiness": CHECK, "drain_s": 1.0, "min_available": 1, **fields}
    job_id = client.submit(argv=argv_of("one"), mode="service", service=service)["id"]
    try:
        assert wait_until(lambda: len(endpoints(client, job_id)) == service["replicas"], LIMIT_S), history(
            client, job_id
        )
        yield job_id
    finally:
        with suppress(GavelApiError):
            client.cancel(job_id)
        assert wait_until(lambda: not replicas(client, job_id), LIMIT_S), history(client, job_id)


def endpoints(client: Client, job_id: str) -> list[Endpoint]:
    return client.endpoints(job_id)


def replicas(client: Client, job_id: str) -> list[Any]:
    ended = ("COMPLETED", "FAILED", "CANCELLED")
    return [each for each in client.jobs() if each["replica_of"] == job_id and each["state"] not in ended]


def history(client: Client, job_id: str) -> str:
    lines = [client.job(job_id)["message"]]
    lines += [f"{each['id']} {each['state']} {each['message']} {each['log_tail']}" for each in client.jobs()]
    return "\n".join(lines)


def stable(client: Client, job_id: str) -> int:
    service = client.job(job_id)["service"]
    assert service
    return service["stable_version"]


def answer(address: str, path: str = "/") -> str:
    return httpx.get(f"http://{address}{path}", timeout=5.0).raise_for_status().text


class Load:
    """Requests of each client one after the other: to HAProxy, or to an endpoint that the service names just then."""

    def __init__(self, client: Client, job_id: str, through: str = "", clients: int = 1) -> None:
        self._through = through
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._client, self._job_id = client, job_id
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(LIMIT_S)

    def _one(self, turn: int) -> str:
        there = endpoints(self._client, self._job_id)
        return there[turn % len(there)]["address"]

    def _run(self) -> None:
        turn = 0
        with httpx.Client(timeout=5.0, headers={"Connection": "close"}) as own:
            while not self._stop.wait(0.02):
                turn += 1
                self._ask(own, turn)

    def _ask(self, own: httpx.Client, turn: int) -> None:
        try:
            text = own.get(f"http://{self._through or self._one(turn)}/").raise_for_status().text
            with self._lock:
                self.answers[text] += 1
        except (httpx.HTTPError, GavelApiError, OSError, ZeroDivisionError) as error:
            self.failures.append(repr(error))
