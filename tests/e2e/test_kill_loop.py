"""The service is killed at random moments; every job that it acknowledged ends, exactly once, exactly."""

import os
import random
import time
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
KILLS = 50 if IS_FULL else 1
KINDS = ("mlp-b256", "rl-b96", "cnn-b64", "recsys-b16384", "rnn-b256")
DRAIN_LIMIT_S = 120.0 + 12 * KILLS


@pytest.mark.full
@pytest.mark.timeout(240 + 32 * KILLS)
def test_no_acknowledged_job_is_lost_doubled_or_short_of_a_step(tmp_path: Path) -> None:
    """1. Jobs are submitted, acknowledgements kept here. 2. kill -9, start again. 3. At the end all are complete."""
    chance = random.Random(7)
    settings = {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LEASE_GRACE_S": "1"}
    acknowledged: dict[str, int] = {}
    with ServiceProcess(tmp_path / "state", settings) as service:
        for _ in range(KILLS):
            submit_some(service, chance, acknowledged)
            time.sleep(chance.uniform(0.0, 3.0))  # the moment of the kill is what varies, not something waited for
            service.kill()
            service.start()
        with Client(service.url, service.operator_token) as operator:
            ended = ("COMPLETED", "FAILED", "CANCELLED")
            done = wait_until(lambda: all(job["state"] in ended for job in operator.jobs()), DRAIN_LIMIT_S, 0.5)
            jobs = {job["id"]: job for job in operator.jobs()}
            assert done, [(job["state"], job["message"]) for job in jobs.values() if job["state"] not in ended]
            assert jobs.keys() == acknowledged.keys()
            assert {job_id: job["steps_done"] for job_id, job in jobs.items()} == acknowledged
            assert {job["state"] for job in jobs.values()} == {"COMPLETED"}
        assert wait_until(lambda: not service.processes_left(), 20)


def submit_some(service: ServiceProcess, chance: random.Random, acknowledged: dict[str, int]) -> None:
    with Client(service.url, service.operator_token) as operator:
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 60)
        for _ in range(chance.randint(1, 2)):
            steps = chance.randint(20, 90)
            job = operator.submit(kind=chance.choice(KINDS), total_steps=steps, scale_factor=chance.choice((1, 1, 2)))
            acknowledged[job["id"]] = steps
