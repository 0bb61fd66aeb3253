"""Inference services with real processes: replicas that answer, are replaced, and give way to a new version."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gavel.cli.services import haproxy
from gavel.client import Client, GavelApiError
from gavel.client.answers import Endpoint
from gavel.demo.service import ServiceProcess, wait_until
from tests.command_line import QuickShell
from tests.nginx import free_port
from tests.serving import CHECK, LIMIT_S, Load, a_service, answer, argv_of, endpoints, history, replicas, stable

RELOAD_S = 2.0  # from one reload of HAProxy to the next, as docs/services.md has it


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_new_version_takes_the_place_of_the_old_one_without_a_failed_request(client: Client) -> None:
    with a_service(client, replicas=2, replicas_max=3) as job_id:
        assert {answer(each["address"]) for each in endpoints(client, job_id)} == {"one"}
        with Load(client, job_id) as load:
            client.edit(job_id, new_version={"argv": argv_of("two")})
            assert wait_until(lambda: client.job(job_id)["service"]["stable_version"] == 2, LIMIT_S), history(
                client, job_id
            )
            assert wait_until(lambda: load.answers["two"] > 50, LIMIT_S)
        assert not load.failures
        assert {each["version"] for each in endpoints(client, job_id)} == {2}


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_version_that_never_gets_ready_is_given_up(client: Client) -> None:
    with a_service(client, replicas=1) as job_id:
        assert wait_until(lambda: stable(client, job_id) == 1, LIMIT_S)
        client.edit(job_id, new_version={"argv": [sys.executable, "-c", "raise SystemExit(3)"]})
        assert wait_until(lambda: client.job(job_id)["service"]["refused_version"] == 2, LIMIT_S), history(
            client, job_id
        )
        assert any(each["kind"] == "service.rolled_back" for each in client.events(job_id))
        assert [answer(each["address"]) for each in endpoints(client, job_id)] == ["one"]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_replica_that_fails_its_liveness_check_is_replaced(client: Client) -> None:
    with a_service(client, replicas=1, liveness=CHECK) as job_id:
        (sick,) = endpoints(client, job_id)
        httpx.get(f"http://{sick['address']}/sick")
        assert wait_until(
            lambda: [each["job_id"] for each in endpoints(client, job_id)] not in ([], [sick["job_id"]]), LIMIT_S
        ), history(client, job_id)
        assert "liveness check failed 2 times" in client.job(sick["job_id"])["message"]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_more_and_fewer_replicas_within_its_bounds(client: Client) -> None:
    with a_service(client, replicas=1, replicas_min=1, replicas_max=2) as job_id:
        client.edit(job_id, replicas=2)
        assert wait_until(lambda: len(endpoints(client, job_id)) == 2, LIMIT_S), history(client, job_id)
        client.edit(job_id, replicas=1)
        assert wait_until(lambda: len(replicas(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        with pytest.raises(GavelApiError, match="has 1 to 2 replicas"):
            client.edit(job_id, replicas=3)


class RunningHaproxy:
    """A real HAProxy in front of a service; `follow` gives it the endpoints that the service names now."""

    def __init__(self, folder: Path, client: Client, job_id: str) -> None:
        program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        if program is None:
            pytest.skip("needs haproxy (Debian: apt install haproxy)")
        self._file, self._client, self._job_id = folder / "haproxy.cfg", client, job_id
        self.bind = f"127.0.0.1:{free_port()}"
        self._written: list[Endpoint] = []
        self._stop = threading.Event()
        self._write()
        self._process = subprocess.Popen(
            [program, "-W", "-f", str(self._file)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> "RunningHaproxy":
        assert wait_until(lambda: self.status() == 200, LIMIT_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        try:
            assert wait_until(self._is_over, LIMIT_S), "HAProxy does not end"
        finally:
            self._process.kill()
            self._process.wait(LIMIT_S)

    def _is_over(self) -> bool:
        """Ask it to end: again and again, because it takes no signal in the moment in which it starts again."""
        self._process.terminate()
        return self._process.poll() is not None

    def status(self) -> int:
        """The status of a request through it; 0: it does not answer."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://{self.bind}/", timeout=5.0).status_code
        return 0

    def _write(self) -> bool:
        there = endpoints(self._client, self._job_id)
        if not there or there == self._written:
            return False
        self._file.write_text(haproxy(self._client.job(self._job_id), there, self.bind))
        self._written = there
        return True

    def _follow(self) -> None:
        while not self._stop.wait(0.2):
            if self._write():
                self._process.send_signal(signal.SIGUSR2)  # it starts again with the file, and drops no connection
                self._stop.wait(RELOAD_S)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_behind_haproxy_no_request_fails_in_a_rolling_update_and_few_when_a_replica_is_killed(
    client: Client, tmp_path: Path
) -> None:
    with (
        a_service(client, replicas=2, drain_s=4.0) as job_id,
        RunningHaproxy(tmp_path, client, job_id) as proxy,
    ):
        with Load(client, job_id, through=proxy.bind) as load:
            client.edit(job_id, new_version={"argv": argv_of("two")})
            assert wait_until(lambda: stable(client, job_id) == 2, LIMIT_S), history(client, job_id)
            seen = load.answers["two"]
            assert wait_until(lambda: load.answers["two"] > seen + 50, LIMIT_S)
        assert not load.failures
        assert load.answers["one"] and load.answers["two"]
        with Load(client, job_id, through=proxy.bind) as load:
            assert wait_until(lambda: load.answers["two"] > 20, LIMIT_S)
            (killed, *_) = endpoints(client, job_id)
            with pytest.raises(httpx.HTTPError):
                answer(killed["address"], "/die")
            assert wait_until(lambda: killed not in endpoints(client, job_id), LIMIT_S)
            assert wait_until(lambda: len(endpoints(client, job_id)) == 2, LIMIT_S), history(client, job_id)
        assert len(load.failures) <= 1, "one request at a time: no more were in flight"


@pytest.mark.full
@pytest.mark.timeout(400)
def test_behind_haproxy_no_request_of_many_at_once_fails_in_a_rolling_update_and_with_fewer_replicas(
    client: Client, tmp_path: Path
) -> None:
    bounds = {"replicas": 2, "replicas_min": 1, "drain_s": 4.0}
    with (
        a_service(client, **bounds) as job_id,
        RunningHaproxy(tmp_path, client, job_id) as proxy,
        Load(client, job_id, through=proxy.bind, clients=8) as load,
    ):
        client.edit(job_id, new_version={"argv": argv_of("two")})
        assert wait_until(lambda: stable(client, job_id) == 2, LIMIT_S), history(client, job_id)
        client.edit(job_id, replicas=1)
        assert wait_until(lambda: len(replicas(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        answered = load.answers["two"]
        assert wait_until(lambda: load.answers["two"] > answered + 200, LIMIT_S)
        assert not load.failures, load.failures[:5]


@pytest.mark.timeout(400)
def test_the_command_line_submits_shows_changes_and_names_endpoints(
    client: Client, running: ServiceProcess, tmp_path: Path
) -> None:
    shell = QuickShell(tmp_path, {"GAVEL_URL": running.url, "GAVEL_TOKEN": running.operator_token}).ok
    wanted = "readiness=/ready,replicas=1,replicas_max=2,drain_s=1"
    options = ("--mode", "service", "--service", wanted, "--no-snapshot", "--json")
    job_id = json.loads(shell("job", "submit", *options, *argv_of("one")))["id"]
    try:
        assert wait_until(lambda: len(endpoints(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        assert endpoints(client, job_id)[0]["address"] in shell("job", "endpoints", job_id)
        assert "default_backend replicas" in shell("job", "endpoints", job_id, "--format", "haproxy")
        assert "1 of 1 replicas are ready" in shell("job", "show", job_id)
        shell("job", "set", job_id, "--replicas", "2", "--", *argv_of("two"))
        assert wait_until(lambda: stable(client, job_id) == 2, LIMIT_S), history(client, job_id)
    finally:
        client.cancel(job_id)
