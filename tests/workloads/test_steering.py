"""Jobs that steer the placement of their own tasks: a real service over two virtual nodes, the runtime's own calls."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

ROOT = Path(__file__).parents[2]
ALPHAZERO = str(ROOT / "examples" / "alphazero.py")
LIMIT_S = 90.0
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
STEER = """
import sys
from gavel.errors import InvalidResource
from gavel_runtime._service import ServiceError
from gavel_runtime import job

SHOW = "from gavel_runtime import job; print('ran on', job.node, job.cluster().get_cluster_state() != {})"


def refused(what):
    try:
        what()
    except ServiceError as error:
        print("refused", error.status, error, flush=True)


def steer():
    mine = [node for node, names in job.get_cluster_state().items() if any(x.startswith("node/") for x in names)]
    there = next(node for node in mine if node != job.node)
    early = job.launch([sys.executable, "-c", SHOW], requires={"near": 1}, name="early")
    first = job.set_resource("near", 1, there)
    print("early", early.wait(60), early.node == there, flush=True)
    units = job.get_cluster_state()[there][f"{job.id}/near"]
    print("units", units.capacity, flush=True)
    again = job.set_resource("near", 4, [job.node, there])
    print("grew", again[there] > first[there], sorted(again) == sorted([job.node, there]))
    refused(lambda: job.set_resource("near", 9, there, expect_generation=first[there]))
    refused(lambda: job.set_resource("near", 1, "nowhere"))
    refused(lambda: job.set_resource("Near", 1, there))
    refused(lambda: job.cluster().set_all([{"owner": "other", "name": "x", "capacity": 1, "nodes": there}]))
    job.set_resource("near", 0, [job.node, there])
    print("left", [n for n, names in job.get_cluster_state().items() if f"{job.id}/near" in names], flush=True)


for step in job.steps():
    if job.is_rank_zero:
        steer()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"GAVEL_VIRTUAL_NODES": "2", "GAVEL_ROUND_DURATION_S": "60"}
    with ServiceProcess(tmp_path_factory.mktemp("steering") / "state", settings) as running:
        yield running


def output_of(service: ServiceProcess, *argv: str, total_steps: int = 1) -> str:
    """The log of a job of two ranks, one a node, that completed."""
    with Client(service.url, service.operator_token) as gavel:
        submitted = gavel.submit(argv=[sys.executable, *argv], total_steps=total_steps, scale_factor=2)
        ended = gavel.wait(submitted["id"], LIMIT_S)
        log = "".join(gavel.read_logs(submitted["id"]))
    assert ended["state"] == "COMPLETED", log
    return log


@pytest.mark.full
def test_a_job_places_its_own_tasks_and_learns_why_not(service: ServiceProcess) -> None:
    output = output_of(service, "-c", STEER).replace("[0] ", "")
    assert "[early] ran on" in output
    for line in ("early 0 True", "units 1", "grew True True", "left []"):
        assert line in output, output
    refusals = [line for line in output.splitlines() if line.startswith("refused")]
    assert [line.split()[1] for line in refusals] == ["412", "404", "422", "403"], output
    assert "there is no node 'nowhere'" in refusals[1]


def test_names_go_with_their_job_and_the_cluster_shows_what_operators_set(service: ServiceProcess) -> None:
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.operator_token}"}, timeout=60
    ) as call:
        node = call.get("/v1/cluster").json()["nodes"][0]["name"]
        put = call.put("/v1/resources/lb", json={"capacity": 2, "nodes": node}, headers={"Prefer": "wait=10"})
        assert put.status_code == 200, put.text
        generation = put.json()["result"]["resources"][0]["generation"]
        (shown,) = call.get("/v1/cluster").json()["resources"]
        assert {name: shown[name] for name in ("owner", "name", "node", "capacity", "free", "generation")} == {
            "owner": "operator",
            "name": "lb",
            "node": node,
            "capacity": 2,
            "free": 2,
            "generation": generation,
        }
        stale = {"If-Match": f'"{generation - 1}"', "Prefer": "wait=10"}
        assert call.delete("/v1/resources/lb", headers=stale).status_code == 412
        current = {"If-Match": f'"{generation}"', "Prefer": "wait=10"}
        assert call.delete("/v1/resources/lb", headers=current).status_code == 200
        assert call.get("/v1/cluster").json()["resources"] == []


@pytest.mark.skipif(not IS_FULL, reason="the full profile: a second start of the service")
def test_a_service_that_is_killed_knows_its_names_again(service: ServiceProcess) -> None:
    head = {"Authorization": f"Bearer {service.operator_token}"}
    with httpx.Client(base_url=service.url, headers=head, timeout=60) as call:
        node = call.get("/v1/cluster").json()["nodes"][0]["name"]
        items = [{"name": f"n{index}", "capacity": 1, "nodes": node} for index in range(64)]
        put = call.post("/v1/resources/batch", json={"resources": items}, headers={"Prefer": "wait=10"})
        assert put.status_code == 200, put.text
    service.kill()
    service.start()
    with httpx.Client(base_url=service.url, headers=head, timeout=60) as call:
        assert wait_until(lambda: len(call.get("/v1/cluster").json()["resources"]) == 64, LIMIT_S)


@pytest.mark.full
def test_the_alphazero_pair_shares_memory_together_and_talks_tcp_apart(service: ServiceProcess) -> None:
    output = output_of(service, ALPHAZERO, "--moves", "20", total_steps=2)
    spread, together, summary = (line for line in output.splitlines() if line.startswith("[0] "))
    assert spread.startswith("[0] spread: ") and spread.endswith(" positions/s over TCP")
    assert together.startswith("[0] together: ") and together.endswith(" positions/s over shared memory")
    assert summary.endswith("all of this is one machine")


@pytest.mark.full
@pytest.mark.skipif(not IS_FULL, reason="the full profile: a service of its own")
def test_the_alphazero_example_runs_by_hand() -> None:
    done = subprocess.run(
        [sys.executable, ALPHAZERO, "--moves", "20"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "over shared memory" in done.stdout
