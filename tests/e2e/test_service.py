"""The demo's path with real processes: `gavel serve`, REST, supervisors, training programs, a kill -9 in between."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gavel.client import Client, GavelApiError
from gavel.demo.service import ServiceProcess, wait_until

ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
LIMIT_S = 90

HOSTILE = {
    "exits-1": ("import sys; print('the data set is missing'); sys.exit(1)", "the data set is missing"),
    "leaves-early": (
        "from gavel_runtime import job\nfor step in job.steps():\n    if step == 3: break",
        "left early",
    ),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "1", "GAVEL_JOB_LOG_BYTES": "65536"}
    settings["GAVEL_START_LIMIT_S"] = "6"  # programs that report nothing give up their workers soon
    with ServiceProcess(tmp_path_factory.mktemp("service") / "state", settings) as running:
        yield running


@pytest.fixture
def operator(service: ServiceProcess) -> Iterator[Client]:
    with Client(service.url, service.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        yield client


def state(client: Client, job_id: str) -> str:
    return client.job(job_id)["state"]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def wait_for_end(client: Client, *job_ids: str) -> None:
    assert wait_until(lambda: all(state(client, i) in ENDED for i in job_ids), LIMIT_S), [
        (job["name"], job["state"], job["message"]) for job in map(client.job, job_ids)
    ]


FINISHES = (
    "from gavel_runtime import job\nfor step in job.steps():\n    if step == 3:\n        job.finish()\n        break"
)


def test_a_job_that_finishes_early_is_complete(operator: Client) -> None:
    job_id = operator.submit(name="finishes", argv=program(FINISHES), total_steps=500)["id"]
    wait_for_end(operator, job_id)
    job = operator.job(job_id)
    assert (job["state"], job["steps_done"], job["total_steps"], job["submitted_steps"]) == ("COMPLETED", 4, 4, 500)
    assert "ended its training after step 4" in job["message"]


@pytest.mark.full  # the loop of kills is in the small profile, too
@pytest.mark.timeout(240)
def test_jobs_survive_a_kill_of_the_service_in_mid_round(service: ServiceProcess) -> None:
    """1. Two tiers, four jobs, one a gang. 2. Once they train, kill -9. 3. Start again: adopted, all end exactly."""
    with Client(service.url, service.operator_token) as operator:
        assert wait_until(lambda: bool(operator.cluster()["workers"]), LIMIT_S)
        operator.put_tier("gold", objective="fairness", weight=2.0)
        operator.put_tier("free", objective="fifo")
        operator.put_user("operator", ["gold", "free"])
        wanted: list[dict[str, Any]] = [
            {"name": "a", "kind": "mlp-b256", "tier": "gold", "total_steps": 150},
            {"name": "b", "kind": "rl-b96", "tier": "free", "total_steps": 151},
            {"name": "c", "kind": "rnn-b256", "tier": "gold", "total_steps": 101},
            {"name": "d", "kind": "cnn-b64", "tier": "free", "total_steps": 102, "scale_factor": 2},
        ]
        ids = [operator.submit(**job)["id"] for job in wanted]
        assert wait_until(lambda: any(operator.job(i)["steps_reported"] > 5 for i in ids), LIMIT_S)
    service.kill()
    service.start()
    with Client(service.url, service.operator_token) as operator:
        assert {job["id"] for job in operator.jobs()} >= set(ids)
        wait_for_end(operator, *ids)
        for job_id, job in zip(ids, wanted, strict=True):
            after = operator.job(job_id)
            assert (after["state"], after["steps_done"]) == ("COMPLETED", job["total_steps"]), after["message"]
            launches = [event["message"] for event in operator.events(job_id) if event["kind"] == "gang.launched"]
            assert len(launches) == after["generation"], "every launch has a generation of its own"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_program_that_fails_is_a_failed_job_with_its_last_lines(operator: Client, name: str) -> None:
    text, expected = HOSTILE[name]
    job_id = operator.submit(name=name, argv=program(text), total_steps=10)["id"]
    wait_for_end(operator, job_id)
    job = operator.job(job_id)
    assert job["state"] == "FAILED"
    assert expected in job["message"] + job["log_tail"]


def test_a_job_may_call_the_api_with_a_token_that_sees_itself_alone(operator: Client) -> None:
    other = operator.submit(name="other", kind="rl-b96", total_steps=1)["id"]
    text = (
        "import os, httpx\n"
        "url, own = os.environ['GAVEL_URL'] + '/v1/jobs/', os.environ['GAVEL_JOB_ID']\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['GAVEL_JOB_TOKEN']}\n"
        f"print('answers', [httpx.get(url + i, headers=headers).status_code for i in (own, '{other}')])"
    )
    job_id = operator.submit(name="caller", argv=program(text), total_steps=1)["id"]
    wait_for_end(operator, job_id, other)
    assert "answers [200, 404]" in "".join(operator.read_logs(job_id))


def test_a_program_that_does_not_exist_is_named(operator: Client) -> None:
    job_id = operator.submit(name="nowhere", argv=["no-such-program"], total_steps=10)["id"]
    wait_for_end(operator, job_id)
    job = operator.job(job_id)
    assert (job["state"], job["reason"]) == ("FAILED", "ProgramNotStarted")
    assert "no-such-program" in job["message"]


@pytest.mark.full
@pytest.mark.timeout(200)
def test_a_program_that_ignores_its_lease_disturbs_nobody_else(operator: Client) -> None:
    """1. Deaf programs on every worker. 2. A trainer is submitted. 3. They are killed at lease end, it completes."""
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(0.1)"
    deaf_ids = [operator.submit(name=f"deaf-{i}", argv=program(deaf), total_steps=10)["id"] for i in range(4)]
    assert wait_until(lambda: all(operator.job(i)["attempt"] > 0 for i in deaf_ids), LIMIT_S)
    trainer = operator.submit(name="trainer", kind="rl-b96", total_steps=40)["id"]
    wait_for_end(operator, trainer)
    assert operator.job(trainer)["state"] == "COMPLETED"
    for job_id in deaf_ids:
        operator.cancel(job_id)
    wait_for_end(operator, *deaf_ids)
    assert {state(operator, i) for i in deaf_ids} == {"CANCELLED"}


@pytest.mark.full
def test_a_program_that_prints_without_end_fills_no_disk(operator: Client, service: ServiceProcess) -> None:
    loud = "import sys\nfor i in range(400_000): print(f'{i:07d} ' + 'x' * 100)\nprint('the end')"
    job_id = operator.submit(name="loud", argv=program(loud), total_steps=1)["id"]
    wait_for_end(operator, job_id)
    assert operator.job(job_id)["state"] == "COMPLETED"
    kept = sum(path.stat().st_size for path in (service.state_dir / "logs").glob(f"{job_id}*"))
    assert kept < 2 * 65536 + 4096
    text = "".join(operator.read_logs(job_id))
    assert text.rstrip().endswith("the end")


def test_a_gang_that_can_never_fit_is_refused_with_the_largest_size(operator: Client) -> None:
    with pytest.raises(GavelApiError) as refused:
        operator.submit(name="huge", kind="mlp-b256", total_steps=10, scale_factor=64)
    assert refused.value.status == 422 and refused.value.field == "scale_factor"
    assert str(max(operator.cluster()["capacity"].values())) in refused.value.detail


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_service_of_another_database_on_the_same_folder_is_refused(service: ServiceProcess) -> None:
    command = [sys.executable, "-m", "gavel.cli", "serve", "--port", "0"]
    other = {"GAVEL_STATE_DIR": str(service.state_dir), "GAVEL_DATABASE_URL": f"sqlite:///{service.state_dir}/other.db"}
    ran = subprocess.run(command, env=os.environ | other, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 1 and "another service uses" in ran.stdout + ran.stderr
