"""Replicas of a service while nobody schedules: they go on, and the service that comes back keeps them."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.serving import CHECK, LIMIT_S, answer, argv_of, endpoints, history, replicas

SETTINGS = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "1"}
SERVICE: Any = {"port": 0, "readiness": CHECK, "replicas": 2, "drain_s": 1.0}


@pytest.mark.full
@pytest.mark.timeout(300)
def test_replicas_outlast_a_kill_of_the_service_and_are_replaced_after_it_as_before(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "state", SETTINGS) as running:
        with Client(running.url, running.operator_token) as client:
            assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
            job_id = client.submit(argv=argv_of("one"), mode="service", service=SERVICE)["id"]
            assert wait_until(lambda: len(endpoints(client, job_id)) == 2, LIMIT_S), history(client, job_id)
            before = endpoints(client, job_id)
        running.kill()
        assert not wait_until(lambda: False, 9.0)  # longer than two rounds and their grace
        assert [answer(each["address"]) for each in before] == ["one", "one"]
        running.start()
        with Client(running.url, running.operator_token) as client:
            assert wait_until(client.is_alive, LIMIT_S)
            assert endpoints(client, job_id) == before
            with pytest.raises(httpx.HTTPError):
                answer(before[0]["address"], "/die")
            assert wait_until(
                lambda: before[0] not in (there := endpoints(client, job_id)) and len(there) == 2, LIMIT_S
            ), history(client, job_id)
            assert before[1] in endpoints(client, job_id)
            assert client.job(before[1]["job_id"])["attempt"] == 1
            client.cancel(job_id)
            assert wait_until(lambda: not replicas(client, job_id), LIMIT_S), history(client, job_id)
