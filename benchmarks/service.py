"""The service under load: submits that are durable when they are answered, 10,000 active jobs, 500 live clients.

Servers are real `gavel serve` processes on loopback, in folders of their own; wrk makes the load on the same cores, so
what a request costs is told in CPU seconds of the server. Pages of the dashboard: `make bench-dashboard`.
"""

import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil

from benchmarks.listeners import Listeners
from benchmarks.load import MISSING, Load, Spent, Submits, own_processes
from benchmarks.mechanism_local import sandbox_rows
from benchmarks.table import Row, run
from gavel.demo.service import ServiceProcess, wait_until

LIMIT_S = 60.0
CONNECTIONS = 32
SETTINGS = {"GAVEL_UNFINISHED_JOBS_PER_USER": "1000000"}
JOB = {"argv": ["sleep", "3600"], "name": "idle", "total_steps": 10**9}
KINDS = 20


def rows(quick: bool) -> Iterator[Row]:
    if shutil.which("wrk") is None:
        sys.exit(MISSING)
    yield from submits(4 if quick else 20)
    yield from crash(4 if quick else 20)
    yield from crowd(2_000 if quick else 10_000, 3 if quick else 10)
    yield from live(500, 100 if quick else 1_000)
    yield from sandbox_rows(7 if quick else 21)
    yield Row("processes that wanted a core meanwhile (load average)", os.getloadavg()[0], f"on {os.cpu_count()} cores")


# --- submits ----------------------------------------------------------------------------------------------------


def submits(seconds: float) -> Iterator[Row]:
    """By an API process beside the one that schedules; every answer comes after its commit."""
    with _service() as service, _api_process(service) as (url, process):
        _warm(url, service.operator_token)
        spent, submitted = Spent(process), _submits(service, "api")
        load = Load(
            f"{url}/v1/jobs", connections=CONNECTIONS, seconds=seconds, token=service.operator_token, submits=submitted
        )
        seen = load.result()
        done = len(submitted.ids())
        yield Row("durable submits per CPU second of an API process", done / spent.seconds(), "1/CPU s", 1800, True)
        yield Row("durable submits per second of wall", done / seen.seconds, "1/s", 800, True)
        yield Row("submit, p99, 32 connections", seen.p99_ms, "ms", 250)
        yield Row("submits refused or broken off", seen.failed, "requests", 0)
        spent = Spent(process)
        seen = Load(f"{url}/healthz", connections=CONNECTIONS, seconds=2, token=service.operator_token).result()
        yield Row(
            "/healthz of the same process: what HTTP costs here and now", seen.requests / spent.seconds(), "1/CPU s"
        )


def crash(seconds: float) -> Iterator[Row]:
    """By a service with its scheduler; killed in the middle, and every acknowledged id looked for after."""
    with _service() as service:
        _warm(service.url, service.operator_token)
        submitted, token = _submits(service, "all"), service.operator_token
        spent = Spent(service.process, with_children=True)
        url = f"{service.url}/v1/jobs"
        load = Load(url, connections=CONNECTIONS, seconds=seconds, token=token, submits=submitted)
        time.sleep(seconds / 2)
        cpu_s = spent.seconds()
        service.kill()
        load.result()
        done = submitted.ids()
        yield Row("durable submits per CPU second, scheduler and solver too", len(done) / cpu_s, "1/CPU s")
        service.start()
        lost = set(done) - _all_ids(service.url, token)
        yield Row("ids acknowledged before kill -9", len(done), "jobs")
        yield Row("of these lost", len(lost), "jobs", 0)


# --- many active jobs -------------------------------------------------------------------------------------------


def crowd(jobs: int, seconds: float) -> Iterator[Row]:
    """Many active jobs: answers while rounds are decided, the rounds, and memory."""
    with _service(GAVEL_ROUND_DURATION_S="5") as service:
        _warm(service.url, service.operator_token)
        token = service.operator_token
        with _client(service.url, token) as client:
            made = _submit_arrays(client, jobs)
            wait_until(lambda: _jobs_of_round(client) > 0.9 * jobs, LIMIT_S)
        earlier_s = _rounds_s(service)
        for name, path in (
            ("list of 50", "/v1/jobs"),
            ("one job", f"/v1/jobs/{made[len(made) // 2]}"),
            ("allocation, grouped", "/v1/allocations/current?group_by=auto"),
            ("placements", "/v1/placements"),
            ("shares", "/v1/shares"),
            ("queue", "/v1/queue"),
        ):
            spent = Spent(service.process)
            seen = Load(f"{service.url}{path}", connections=4, seconds=seconds, token=token).result()
            yield Row(f"{name} of {jobs} jobs, p99", seen.p99_ms, "ms", 100)
            yield Row(f"{name}, an answer", 1e3 * spent.seconds() / max(1, seen.requests), "CPU ms")
        wait_until(lambda: len(_rounds_s(service)) > len(earlier_s), LIMIT_S)
        spent_s = _rounds_s(service)[len(earlier_s) :]
        yield Row(f"round of {jobs} jobs while they are served, median", statistics.median(spent_s), "s", 2)
        yield Row("the longest", max(spent_s), "s", 2)
        yield Row("memory of the API's process", service.process.memory_info().rss / 1e6, "MB")
        yield Row("with its scheduler and solver", sum(_memory_bytes(service.process)) / 1e6, "MB", 600)


def _submit_arrays(client: httpx.Client, jobs: int) -> list[str]:
    """Submit this number of jobs of 20 kinds; return their ids."""
    made: list[str] = []
    for index in range(KINDS):
        job = JOB | {"name": f"kind-{index}", "scale_factor": 1, "weight": 1 + index % 3}
        answer = client.post("/v1/jobs/array", json={"job": job, "count": jobs // KINDS}).raise_for_status()
        made += [each["id"] for each in answer.json()["items"]]
    return made


def _jobs_of_round(client: httpx.Client) -> int:
    answer = client.get("/v1/allocations/current", params={"group_by": "tier_and_kind"})
    return int(answer.json()["jobs"]) if answer.status_code == 200 else 0


def _memory_bytes(service: psutil.Process) -> Iterator[int]:
    """Memory of a service's processes, one after the other, but for those of jobs; what several share counts once.

    One that is about to become a supervisor shares all of its parent's.
    """
    for each in own_processes(service):
        with suppress(psutil.NoSuchProcess):
            yield each.memory_full_info().pss


def _rounds_s(service: ServiceProcess) -> list[float]:
    """What rounds took from the observation to the commit, by the service's log."""
    lines = (json.loads(line) for line in (service.state_dir / "scheduler.log").read_text().splitlines() if line)
    return [line["seconds"] for line in lines if line.get("event") == "round.committed"]


# --- live clients -----------------------------------------------------------------------------------------------


def live(clients: int, jobs: int) -> Iterator[Row]:
    """Clients that follow all jobs while others submit."""
    with _service() as service:
        _warm(service.url, service.operator_token)
        missed, cpu_s = asyncio.run(_follow(service, clients, jobs))
    yield Row(f"jobs not told to one of {clients} live clients", missed, "events", 0)
    yield Row(f"server's CPU for {jobs} jobs to {clients} clients", cpu_s, "CPU s")


async def _follow(service: ServiceProcess, clients: int, jobs: int) -> tuple[int, float]:
    spent = Spent(service.process)
    headers = {"Authorization": f"Bearer {service.operator_token}"}
    async with (
        Listeners(service.url, service.operator_token, clients) as listeners,
        httpx.AsyncClient(base_url=service.url, headers=headers, timeout=LIMIT_S, trust_env=False) as client,
    ):
        made: list[str] = []
        for _ in range(jobs // 10):
            answers = await asyncio.gather(*(client.post("/v1/jobs", json=JOB) for _ in range(10)))
            made += [each.raise_for_status().json()["id"] for each in answers]
        await listeners.until_told(made, LIMIT_S)
        return listeners.missed(made), spent.seconds()


# --- servers ----------------------------------------------------------------------------------------------------


@contextmanager
def _service(**settings: str) -> Iterator[ServiceProcess]:
    """A service with its scheduler, on a free port, in a folder of its own; gone afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServiceProcess(Path(folder) / "state", SETTINGS | settings) as service,
    ):
        yield service


@contextmanager
def _api_process(service: ServiceProcess) -> Iterator[tuple[str, psutil.Process]]:
    """A second process on the same database, which only serves the API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | SETTINGS | {"GAVEL_STATE_DIR": str(service.state_dir), "GAVEL_PORT": str(port)}
    with (service.state_dir / "api.out").open("wb") as output:
        arguments = [sys.executable, "-m", "gavel.cli", "serve", "--api-only"]
        process = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        if not wait_until(lambda: _answers(url) or process.poll() is not None, LIMIT_S) or process.poll() is not None:
            raise RuntimeError(f"the API process did not start:\n{(service.state_dir / 'api.out').read_text()}")
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _client(url: str, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False)


def _warm(url: str, token: str) -> None:
    """Wait until a job is accepted and the first round planned, so that the cost of the start is not measured."""
    with _client(url, token) as client:
        assert wait_until(lambda: client.post("/v1/jobs", json=JOB).status_code == 201, LIMIT_S)
        assert wait_until(lambda: bool(client.get("/v1/rounds").json()["items"]), LIMIT_S)


def _submits(service: ServiceProcess, name: str) -> Submits:
    return Submits(run=name, body=json.dumps(JOB), acknowledged=service.state_dir / f"acknowledged-{name}")


def _all_ids(url: str, token: str) -> set[str]:
    """Return the ids of all jobs, read page by page."""
    ids: set[str] = set()
    cursor: str | None = ""
    with _client(url, token) as client:
        while cursor is not None:
            page = client.get("/v1/jobs", params={"limit": 200} | ({"cursor": cursor} if cursor else {}))
            ids |= {each["id"] for each in page.raise_for_status().json()["items"]}
            cursor = page.json()["next_cursor"]
    return ids


if __name__ == "__main__":
    run("Service under load", rows)
