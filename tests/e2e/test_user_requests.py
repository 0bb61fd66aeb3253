"""Pauses, retries, sweeps and audits with real programs on SQLite; with the full profile on PostgreSQL, too."""

import os
import sys
from collections.abc import Iterator

import pytest

from gavel.client import Client, JobSubmit
from gavel.demo.service import ServiceProcess, wait_until
from tests.postgresql import Server, postgresql

__all__ = ["postgresql"]

pytestmark = pytest.mark.full

LIMIT_S = 90
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
SETTINGS = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "1"}
FAILS_UNTIL_THE_THIRD = (
    "import pathlib, sys\n"
    "seen = pathlib.Path('attempts.txt')\n"
    "tries = len(seen.read_text()) + 1 if seen.exists() else 1\n"
    "seen.write_text('x' * tries)\n"
    "sys.exit(0 if tries == 3 else 7)"
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"] if IS_FULL else ["sqlite"])
def operator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = dict(SETTINGS)
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        settings["GAVEL_DATABASE_URL"] = server.new_database()
    folder = tmp_path_factory.mktemp("service") / "state"
    with ServiceProcess(folder, settings) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        yield client


def ended(client: Client, *job_ids: str) -> bool:
    return all(client.job(each)["state"] in ("COMPLETED", "FAILED", "CANCELLED") for each in job_ids)


@pytest.mark.timeout(200)
def test_a_training_job_is_paused_at_a_checkpoint_and_goes_on_from_it(operator: Client) -> None:
    job_id = operator.submit(kind="rl-b96", total_steps=400)["id"]
    assert wait_until(lambda: operator.job(job_id)["steps_reported"] > 5, LIMIT_S)
    operator.pause(job_id)
    assert wait_until(lambda: operator.job(job_id)["state"] == "PAUSED", LIMIT_S), operator.job(job_id)
    paused = operator.job(job_id)
    assert 0 < paused["steps_done"] < 400 and paused["preemptions"] == 0, paused
    operator.resume(job_id)
    assert wait_until(lambda: ended(operator, job_id), LIMIT_S)
    job = operator.job(job_id)
    assert (job["state"], job["steps_done"]) == ("COMPLETED", 400), job["message"]
    launches = [each["message"] for each in operator.events(job_id) if each["kind"] == "gang.launched"]
    assert any(f"from step {paused['steps_done']}" in message for message in launches)
    actions = [entry["action"] for entry in operator.audit(job_id=job_id)]
    assert {"pause.requested", "job.resumed"} <= set(actions)


@pytest.mark.timeout(200)
def test_a_program_that_fails_twice_is_retried_and_what_waits_for_it_then_runs(operator: Client) -> None:
    flaky = operator.submit(argv=[sys.executable, "-c", FAILS_UNTIL_THE_THIRD], total_steps=1, max_retries=2)["id"]
    after = operator.submit(argv=[sys.executable, "-c", "print('after')"], total_steps=1, after=[flaky])["id"]
    assert operator.job(after)["waits_for"] == [flaky]
    assert wait_until(lambda: ended(operator, flaky, after), LIMIT_S), operator.job(flaky)
    job = operator.job(flaky)
    assert (job["state"], job["failures"]) == ("COMPLETED", 2), job["message"]
    assert operator.job(after)["state"] == "COMPLETED"


@pytest.mark.timeout(200)
def test_each_job_of_a_sweep_sees_its_own_parameters(operator: Client) -> None:
    text = "import os, sys; print('sees', os.environ['RATE'], sys.argv[1], os.environ['GAVEL_ARRAY_INDEX'])"
    program = JobSubmit(argv=[sys.executable, "-c", text, "{RATE}"], total_steps=1)
    made = operator.submit_array(program, parameters={"RATE": ["0.5", "0.25"]})
    ids = [job["id"] for job in made["items"]]
    assert wait_until(lambda: ended(operator, *ids), LIMIT_S)
    logs = ["".join(operator.read_logs(each)) for each in ids]
    assert "sees 0.5 0.5 0" in logs[0] and "sees 0.25 0.25 1" in logs[1]
