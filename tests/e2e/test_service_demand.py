"""Replicas that follow a demand, with real processes: stated on the command line, and measured by their metrics."""

import json
from collections import Counter
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.client.answers import Demand
from gavel.demo.service import ServiceProcess, wait_until
from tests.command_line import QuickShell
from tests.serving import LIMIT_S, Load, a_service, argv_of, endpoints, history, replicas


def demand_of(client: Client, job_id: str) -> Demand:
    service = client.job(job_id)["service"]
    assert service and service["demand"]
    return service["demand"]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_command_line_states_a_demand_and_changes_it_down_to_none_and_back(
    client: Client, running: ServiceProcess, tmp_path: Path
) -> None:
    shell = QuickShell(tmp_path, {"GAVEL_URL": running.url, "GAVEL_TOKEN": running.operator_token}).ok
    types = Counter(worker["accelerator_type"] for worker in client.cluster()["workers"])
    ((accelerator_type, workers),) = types.most_common(1)
    assert workers >= 2
    rate = json.dumps({accelerator_type: 10})
    wanted = f"readiness=/ready,replicas_min=0,replicas_max=2,drain_s=1,demand=5,rate={rate},down_after_s=1"
    options = ("--mode", "service", "--service", wanted, "--no-snapshot", "--json")
    job_id = json.loads(shell("job", "submit", *options, *argv_of("one")))["id"]
    try:
        assert wait_until(lambda: len(endpoints(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        (replica,) = replicas(client, job_id)
        assert replica["accelerator_types"] == [accelerator_type]
        shell("job", "set", job_id, "--demand", "25")
        assert wait_until(lambda: len(endpoints(client, job_id)) == 2, LIMIT_S), history(client, job_id)
        assert demand_of(client, job_id)["bound"] == "replicas_max"
        shown = " ".join(shell("job", "show", job_id).split())
        assert "It is asked for 25 requests/s; with headroom that needs 30" in shown
        assert "That is the most that replicas_max lets it be." in shown
        shell("job", "set", job_id, "--demand", "0")
        assert wait_until(lambda: not replicas(client, job_id), LIMIT_S), history(client, job_id)
        shell("job", "set", job_id, "--demand", "1")
        assert wait_until(lambda: len(endpoints(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        assert demand_of(client, job_id)["lead_s"] > 0
        faster = json.dumps({accelerator_type: 20})
        shell("job", "set", job_id, "--rate", faster, "--headroom", "0.5", "--replicas-min", "1", "--replicas-max", "3")
        changed = demand_of(client, job_id)
        assert (changed["rates"], changed["headroom"]) == ({accelerator_type: 20.0}, 0.5)
        assert "1/1 ready" in shell("job", "list")
    finally:
        client.cancel(job_id)
        assert wait_until(lambda: not replicas(client, job_id), LIMIT_S), history(client, job_id)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_replicas_follow_the_requests_that_they_count_and_no_request_fails(client: Client) -> None:
    """About ten requests a second are asked, and one replica answers three of them."""
    measured = {"demand": "measured", "rate": 3.0, "metrics": "/metrics", "requests_metric": "asked_total"}
    bounds = {"replicas": 1, "replicas_min": 1, "replicas_max": 2, "down_after_s": 5.0}
    with a_service(client, **measured, **bounds) as job_id:
        with Load(client, job_id) as load:
            assert wait_until(lambda: len(endpoints(client, job_id)) == 2, LIMIT_S), history(client, job_id)
        assert (demand_of(client, job_id)["now"] or 0) > 2.5
        assert wait_until(lambda: len(replicas(client, job_id)) == 1, LIMIT_S), history(client, job_id)
        assert not load.failures
