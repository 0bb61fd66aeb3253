"""A training beside a session on one accelerator, with real processes; it leaves when another session joins."""

import json
import sys
from pathlib import Path

import pytest

from gavel.backends.accelerators import CPU_TYPES
from gavel.client import Client, Job
from gavel.demo.service import ServiceProcess, wait_until
from tests.trains import trains

LIMIT_S = 90
GIB = 1 << 30
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": "6",
    "GAVEL_LEASE_GRACE_S": "2",
    "GAVEL_CPU_WORKERS": "1",
    "GAVEL_ACCELERATOR_MEMORY_BYTES": json.dumps({name: 16 * GIB for name in sorted(CPU_TYPES)}),
}


def is_running(client: Client, job_id: str) -> bool:
    return client.job(job_id)["state"] == "RUNNING"


def opened(client: Client) -> Job:
    """A session that lets another job onto its accelerators, once it runs."""
    session = client.submit(
        argv=[sys.executable, "-c", "import time; time.sleep(3600)"],
        mode="interactive",
        longest_s=900,
        accelerator_share=0.5,
        accelerator_memory_bytes=8 * GIB,
    )
    has_started = wait_until(lambda: client.job(session["id"])["session_ends_at_s"] is not None, LIMIT_S)
    assert has_started and is_running(client, session["id"]), client.job(session["id"])["message"]
    return session


@pytest.mark.full
@pytest.mark.timeout(400)
def test_it_trains_beside_the_session_until_another_one_joins(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "state", SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: len(client.cluster()["workers"]) == 1, LIMIT_S)
        first = opened(client)
        training = client.submit(argv=trains(0.05), total_steps=100_000, accelerator_memory_bytes=4 * GIB)["id"]
        assert wait_until(lambda: client.job(training)["steps_reported"] > 0, LIMIT_S), client.job(training)["message"]
        assert f"runs beside session {first['id']}" in client.explain(training)["message"]
        (worker,) = client.cluster()["workers"]
        assert set(worker["job_ids"]) == {first["id"], training}
        second = opened(client)
        assert wait_until(lambda: client.job(training)["state"] == "PREEMPTED", LIMIT_S)
        left = client.job(training)
        assert left["steps_done"] > 0, "it has left with a checkpoint"
        assert is_running(client, first["id"]) and client.job(first["id"])["preemptions"] == 0
        client.cancel(second["id"])
        assert wait_until(lambda: client.job(training)["steps_reported"] > left["steps_reported"], LIMIT_S)
        assert [client.job(first["id"])[name] for name in ("state", "generation")] == ["RUNNING", 1]
        shown = [row for row in client.throughputs()["interference"] if row["partner"]]
        assert shown, "what the training keeps beside the session was measured"
        for job_id in (training, first["id"]):
            client.cancel(job_id)
