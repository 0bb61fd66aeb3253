"""A service whose settings tell regions apart, with real processes on this machine, which is the region `local`."""

import json
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

LIMIT_S = 120
SETTINGS = {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LEASE_GRACE_S": "2", "GAVEL_REGIONS": "{}"}
PROGRAM = """
import json, os
from gavel_runtime import job

for step in job.steps(total=20):
    pass
(job.output_dir / "type.json").write_text(json.dumps(os.environ["GAVEL_ACCELERATOR_TYPE"]))
"""


@pytest.mark.full
def test_a_job_runs_on_the_type_of_its_region_and_its_program_sees_the_plain_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    with ServiceProcess(tmp_path / "state", SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        assert all(each["accelerator_type"].endswith("@local") for each in client.cluster()["workers"])
        program = [sys.executable, "-u", str(tmp_path / "train.py")]
        job = client.submit(argv=program, data_region="local", data_bytes=10**9)
        ended = client.wait(job["id"], timeout_s=LIMIT_S)
        assert ended["state"] == "COMPLETED", (ended["message"], ended["log_tail"])
        residence, (held,) = ended["residence"], ended["received_s"]
        assert residence is not None and (residence["region"], residence["moves"]) == ("local", 0)
        seen = json.loads(b"".join(client.read_file(job["id"], "type.json")))
        assert f"{seen}@local" == held
        assert all("@" not in each["accelerator_type"] for each in client.throughputs()["items"])


@pytest.mark.full
def test_a_job_that_moves_arrives_although_the_service_is_killed_meanwhile(tmp_path: Path) -> None:
    """Two simulated regions with a worker each, and two jobs with data in one of them: one job moves."""
    settings = {
        "GAVEL_ROUND_DURATION_S": "1",
        "GAVEL_BACKEND": "simulated",
        "GAVEL_SIMULATED_NODES": '{"v100@eu": 1, "v100@us": 1}',
        "GAVEL_SIMULATED_REPORT_PERIOD_S": "0",
        "GAVEL_REGIONS": '{"gbit_s": 16, "usd_per_gb": 0.001, "interval_s": 0}',
        "GAVEL_PRICES_USD_PER_HOUR": '{"v100": 100}',
    }
    with ServiceProcess(tmp_path / "state", settings) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        assert {each["region"] for each in client.nodes()} == {"eu", "us"}
        data = {"data_region": "eu", "data_bytes": 10**10, "throughputs": {"v100": 5.0}}
        ids = [client.submit(argv=["x", "k"], total_steps=150, **data)["id"] for _ in range(2)]
        own = [client.job(job_id)["residence"] for job_id in ids]
        assert wait_until(lambda: any(moves(client, job_id) for job_id in ids), LIMIT_S), own
        running.kill()
        running.start()
        with Client(running.url, running.operator_token) as again:
            assert wait_until(lambda: all(again.job(job_id)["finished_at_s"] for job_id in ids), LIMIT_S)
            ended = [again.job(job_id) for job_id in ids]
            assert [each["state"] for each in ended] == ["COMPLETED"] * 2, [each["message"] for each in ended]
            assert sum(moves(again, job_id) for job_id in ids) == 1
            assert {name for each in ended for name in each["received_s"]} == {"v100@eu", "v100@us"}
            (moved,) = (each for each in ended if each["residence"] and each["residence"]["moves"])
            assert "job.moved" in [event["kind"] for event in again.events(moved["id"])]


def moves(client: Client, job_id: str) -> int:
    residence = client.job(job_id)["residence"]
    return residence["moves"] if residence else 0
