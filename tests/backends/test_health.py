"""The checks of a replica, with real sockets: nothing blocks, and no answer of a replica ends its supervisor."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import replica_load
from gavel.backends.gang_records import replica_load as loaded
from gavel.backends.health import Health, Probe, Repeated, health_of
from gavel.backends.machine import boottime_s
from gavel.backends.meeting import LOOPBACK
from gavel.backends.replica_load import ANSWER_BYTES, COUNT_MAX, LoadWatch, Reading, total
from gavel.demo.service import wait_until
from gavel.types import Load
from gavel.types.services import DEMAND_MAX
from tests.conftest import IS_FULL

LIMIT_S = 30.0
CHECK = {"path": "/ready", "interval_s": 0.0, "timeout_s": 5.0, "failures": 2}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers each connection with `answer`, and closes it; None: it accepts and says nothing."""

    def __init__(self, answer: bytes | None = OK) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                if self.answer is None:
                    self._kept.append(connection)
                    continue
                with connection, contextlib.suppress(OSError):
                    self.asked.append(connection.recv(4096))
                    connection.sendall(self.answer)

    def close(self) -> None:
        """Listen no more: connections are refused."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT_S)
        for each in self._kept:
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    with contextlib.suppress(OSError):
        server.close()


def problem_of(port: int, path: str = "/ready", timeout_s: float = 10.0) -> str:
    """What a probe says once it is over; "": the answer is good."""
    probe = Probe((LOOPBACK, port), path, boottime_s() + timeout_s)
    assert probe.look() or wait_until(probe.look, LIMIT_S)
    return probe.problem


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (OK, ""),
        (b"HTTP/1.0 399 x\r\n\r\n", ""),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "status 400"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503"),
        (b"", "the answer is no HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is no HTTP"),
        (b"\xff" * 5000, "the answer is no HTTP"),
    ],
)
def test_an_answer_below_400_is_good(server: Server, answer: bytes, problem: str) -> None:
    server.answer = answer
    assert problem_of(server.port) == problem


@settings(max_examples=200 if IS_FULL else 25, deadline=None)
@given(answer=st.binary(max_size=600) | st.binary(max_size=20).map(lambda rest: b"HTTP/1.1 " + rest))
def test_whatever_is_answered_the_probe_comes_to_an_end(answer: bytes) -> None:
    server = Server(answer)
    try:
        problem_of(server.port)
    finally:
        server.close()


def test_it_asks_for_the_path_and_closes(server: Server) -> None:
    assert problem_of(server.port, "/ready?of=model") == ""
    assert server.asked[0].startswith(b"GET /ready?of=model HTTP/1.1\r\n")
    assert b"Connection: close\r\n" in server.asked[0]


def test_without_a_path_a_connection_is_enough_and_a_refused_one_is_not(server: Server) -> None:
    server.answer = None
    assert problem_of(server.port, "") == ""
    server.close()
    assert "refused" in problem_of(server.port, "")


def test_a_connection_that_reaches_itself_is_not_one_to_the_replica() -> None:
    """The kernel may give a connection to a port where nobody listens that very port as its own."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    own = first + 1000 + first % 2  # even: of those that connections get
    assert all(problem_of(own, "") for _ in range(60_000))


def test_no_answer_in_time_is_a_bad_one(server: Server) -> None:
    server.answer = None
    assert problem_of(server.port, timeout_s=0.1) == "no answer in time"


def test_one_good_answer_passes_and_only_so_many_bad_ones_in_a_row_fail(server: Server) -> None:
    check = Repeated(CHECK, (LOOPBACK, server.port))

    def answered(status: int) -> tuple[bool, bool]:
        server.answer = f"HTTP/1.1 {status} x\r\n\r\n".encode()
        check.look()  # begins a probe, which the next ones bring to its end
        assert wait_until(lambda: check._probe is None or check.look() is not None, LIMIT_S)  # type: ignore[func-returns-value]
        return check.passes, check.has_failed

    assert answered(503) == (False, False)
    assert answered(200) == (True, False)
    assert answered(503) == (True, False)
    assert answered(200) == (True, False)
    assert [answered(503), answered(503)] == [(True, False), (False, True)]
    assert answered(200) == (True, False)


def a_launch(**serving: Any) -> dict[str, Any]:
    fields = {"port": 0, "readiness": CHECK, "liveness": None} | serving
    return {"argv": ["serve", "--port={GAVEL_REPLICA_PORT}"], "ranks": [{"env": {}}, {"env": {}}], "serving": fields}


def let_go(health: Health) -> None:
    """Give the port back, as the end of a supervisor does."""
    assert health._reserved
    health._reserved.close()


def stop_asking(health: Health) -> None:
    """Close the connections of questions that have no answer yet, as the end of a supervisor does."""
    for each in (health._readiness, health._liveness, health._load):
        if asked := getattr(each, "_probe", None) or getattr(each, "_reading", None):
            asked._socket.close()


def test_replicas_get_ports_of_their_own_which_their_programs_learn(tmp_path: Path) -> None:
    launches = [a_launch(), a_launch()]
    checks = [Health(launch, str(tmp_path)) for launch in launches]
    ports = [launch["ranks"][0]["env"]["GAVEL_REPLICA_PORT"] for launch in launches]
    for each in checks:
        let_go(each)
    assert len(set(ports)) == 2
    assert [launch["argv"] for launch in launches] == [["serve", f"--port={port}"] for port in ports]
    assert launches[0]["ranks"][1]["env"]["GAVEL_REPLICA_PORT"] == ports[0]


def test_liveness_is_asked_once_it_was_ready_and_the_file_says_what_is(server: Server, tmp_path: Path) -> None:
    server.answer = b"HTTP/1.1 503 it loads\r\n\r\n"
    health = Health(a_launch(port=server.port, liveness={**CHECK, "path": "/live"}), str(tmp_path))

    def written(is_ready: bool) -> bool:
        health.look()
        text = (tmp_path / "health.json").read_text() if (tmp_path / "health.json").exists() else "{}"
        return bool(json.loads(text) == {"port": server.port, "is_ready": is_ready})

    assert wait_until(lambda: written(is_ready=False) and len(server.asked) > 5, LIMIT_S)
    assert not health.problem, "a program that loads is not asked whether it lives"
    assert not any(b"/live" in each for each in server.asked)
    server.answer = OK
    assert wait_until(lambda: written(is_ready=True), LIMIT_S)
    server.answer = b"HTTP/1.1 500 x\r\n\r\n"
    assert wait_until(lambda: written(is_ready=False) and bool(health.problem), LIMIT_S)
    assert health.problem == "its liveness check failed 2 times in a row: status 500"
    stop_asking(health)


def metrics(requests: object, queue: object = 0) -> bytes:
    """What a replica answers that has had so many requests."""
    lines = f"""# TYPE http_requests_total counter
http_requests_total{{path="/a}} b",code="200"}} {requests} 1700000000000
http_requests_total_created 7
queue {queue} # {{trace_id="x"}} 3
"""
    return OK.replace(b"Content-Length: 0", b"Content-Type: text/plain") + lines.encode()


@pytest.mark.parametrize(
    ("text", "sum_of_all"),
    [
        ("n 3", 3.0),
        ('n{a="1"} 3\nn{a="2"} 4.5e1 1700000000000', 48.0),
        ('n{a="}\\" {"}\t3\nn_total 9\nmn 9', 3.0),
        ("# n 3", None),
        ("", None),
        ("n NaN", None),
        ("n +Inf", None),
        ("n -1", None),
        ("n 1e19", None),
        ("n 3\nn x", None),
        ('n{a="1 3', None),
    ],
)
def test_samples_of_a_metric_are_added_up_and_a_bad_one_is_not_believed(text: str, sum_of_all: float | None) -> None:
    assert total(text, "n") == sum_of_all


@settings(max_examples=500 if IS_FULL else 50, deadline=None)
@given(st.text(max_size=300) | st.text(alphabet='n{}"\\= 1.e+-#\n', max_size=300).map("n{".__add__))
def test_whatever_stands_in_metrics_a_total_is_none_or_within_bounds(text: str) -> None:
    number = total(text, "n")
    assert number is None or 0 <= number <= COUNT_MAX


def test_a_label_without_an_end_does_not_hold_up_the_supervisor() -> None:
    assert total("n{" + 'a="' * 200_000, "n") is None


class Clock:
    """The time that the watch of a load reads."""

    def __init__(self) -> None:
        self.now_s = boottime_s() + 1000.0  # so that no probe is too late by the real one

    def __call__(self) -> float:
        return self.now_s


def test_requests_per_second_are_counted_and_forgotten_when_nobody_answers(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, path = Clock(), tmp_path / "load.json"
    monkeypatch.setattr(replica_load, "boottime_s", clock)
    named = {"path": "/metrics", "requests": "http_requests_total", "queue": "queue"}
    watch = LoadWatch(named, CHECK | {"interval_s": 1.0}, (LOOPBACK, server.port), str(path))

    def read_after(seconds: float, answer: bytes) -> Load | None:
        clock.now_s += seconds
        server.answer = answer
        watch.look()  # begins, and the next ones bring it to its end
        assert wait_until(lambda: watch._reading is None or watch.look() is not None, LIMIT_S)  # type: ignore[func-returns-value]
        return loaded(json.loads(path.read_text())) if path.exists() else None

    assert read_after(0.0, metrics(100)) is None
    assert read_after(1.0, metrics(150)) is None, "too short a time to count"
    assert read_after(4.0, metrics(200, queue=12)) == Load(requests_per_s=20.0, queue=12.0)
    assert read_after(5.0, metrics(150)) == Load(requests_per_s=20.0, queue=12.0), "its program began anew"
    assert read_after(2.0, metrics(170)) == Load(requests_per_s=10.0)
    assert read_after(40.0, metrics(170)) == Load(requests_per_s=0.0)
    assert read_after(2.0, metrics("nonsense")) == Load(requests_per_s=0.0)
    assert read_after(2.0, b"HTTP/1.1 500 x\r\n\r\nhttp_requests_total 9") is None, "the second bad answer"
    assert read_after(2.0, metrics(1e17)) == Load(requests_per_s=1e9), "no more than anybody believes"
    assert b"GET /metrics HTTP/1.0\r\n" in server.asked[0]


def test_an_answer_without_end_is_given_up(server: Server) -> None:
    server.answer = OK + b"x" * (2 * ANSWER_BYTES)
    reading = Reading((LOOPBACK, server.port), "/metrics", boottime_s() + LIMIT_S)
    assert wait_until(reading.look, LIMIT_S)
    assert "its metrics are more than" in reading.problem


def test_a_record_of_a_load_that_is_none_is_refused() -> None:
    assert loaded({}) is None
    for record in ({"requests_per_s": 1e300, "queue": 0}, {"requests_per_s": "1", "queue": 0}, {"requests_per_s": 1}):
        with pytest.raises(ValueError):
            loaded(record)


def test_a_replica_is_asked_for_its_load_once_it_is_ready(server: Server, tmp_path: Path) -> None:
    server.answer = b"HTTP/1.1 503 it loads\r\n\r\n"
    named = {"path": "/metrics", "requests": "http_requests_total", "queue": ""}
    health = Health(a_launch(port=server.port, metrics=named), str(tmp_path))
    assert wait_until(lambda: health.look() is None and len(server.asked) > 3, LIMIT_S)  # type: ignore[func-returns-value]
    assert not any(b"/metrics" in each for each in server.asked)
    server.answer = metrics(3)
    assert wait_until(lambda: health.look() is None and any(b"/metrics" in each for each in server.asked), LIMIT_S)  # type: ignore[func-returns-value]
    stop_asking(health)


def test_only_the_node_of_rank_0_checks(tmp_path: Path) -> None:
    launch = a_launch()
    assert health_of({**launch, "ranks": [{"env": {}, "rank": 1}]}, str(tmp_path)) is None
    assert health_of({**launch, "serving": None}, str(tmp_path)) is None
    health = health_of(launch, str(tmp_path))
    assert health
    let_go(health)


def test_a_supervisor_writes_no_load_that_the_service_refuses() -> None:
    """It loads none of the service's types, so the bound is stated there, too."""
    assert replica_load.DEMAND_MAX == DEMAND_MAX
