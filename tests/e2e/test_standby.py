"""Several processes on one database: one plans, another takes over when it dies or falls asleep, all serve the API."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gavel.demo.service import ServiceProcess, wait_until
from tests.e2e.processes import LEADS, LIMIT_S, STANDS_BY, Member
from tests.postgresql import running_server
from tests.trains import trains

SETTINGS = {"GAVEL_ROUND_DURATION_S": "6", "GAVEL_LEASE_GRACE_S": "1", "GAVEL_LEADER_LEASE_S": "2"}
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
STEPS = 300
TRAINS = trains(0.03)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder; no gang is left in it."""
    yield tmp_path / "state"
    ServiceProcess(tmp_path / "state", {}).stop()


@contextmanager
def a_job_that_trains(member: Member) -> Iterator[str]:
    with member.client() as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        job_id = client.submit(name="trainer", argv=TRAINS, total_steps=STEPS)["id"]
        assert wait_until(lambda: client.job(job_id)["steps_reported"] > 3, LIMIT_S), client.job(job_id)
    yield job_id


def completed(member: Member, job_id: str) -> None:
    """The job ends with all of its steps, and never had two gangs under one token, nor lost one."""
    with member.client() as client:
        assert wait_until(lambda: client.job(job_id)["state"] in ("COMPLETED", "FAILED"), LIMIT_S), client.job(job_id)
        job, events = client.job(job_id), list(client.events(job_id))
        assert (job["state"], job["steps_done"]) == ("COMPLETED", STEPS), job["message"]
        kinds = [event["kind"] for event in events]
        assert kinds.count("gang.launched") == job["generation"] and "gang.lost" not in kinds, events
        rounds = [each["round_index"] for each in client.rounds()]
        assert len(set(rounds)) == len(rounds), "nobody planned a round twice"


@pytest.mark.timeout(180)
@pytest.mark.skipif(not IS_FULL, reason="the next one kills a leader, too: alone only with GAVEL_TEST_PROFILE=full")
def test_a_standby_takes_over_from_a_leader_that_was_killed_and_its_gangs_run_on(folder: Path) -> None:
    """1. A job trains. 2. kill -9 of the leader. 3. The standby leads and adopts the gang; the job ends whole."""
    with Member(folder, SETTINGS) as leader, Member(folder, SETTINGS) as standby:
        leader.wait_until_it_says(f"{LEADS}, generation 1")
        standby.wait_until_it_says(STANDS_BY)
        with a_job_that_trains(leader) as job_id:
            leader.kill()
            standby.wait_until_it_says(f"{LEADS}, generation 2")
            completed(standby, job_id)
            assert httpx.get(f"{standby.url}/readyz", timeout=60).status_code == 200


@pytest.mark.full
@pytest.mark.timeout(180)
def test_gangs_run_on_while_one_leader_sleeps_and_the_next_is_killed(folder: Path) -> None:
    """1. A job trains. 2. SIGSTOP: the standby leads. 3. SIGCONT: the first stands by. 4. kill -9: it leads again."""
    with Member(folder, SETTINGS) as sleeper, Member(folder, SETTINGS) as second:
        second.wait_until_it_says(STANDS_BY)
        with a_job_that_trains(sleeper) as job_id:
            sleeper.pause()
            second.wait_until_it_says(f"{LEADS}, generation 2")
            sleeper.resume()
            sleeper.wait_until_it_says(STANDS_BY)
            with sleeper.client() as client:  # it serves the API, over what the other one plans
                assert client.job(job_id)["steps_reported"] > 3 and client.is_alive()
            second.kill()
            sleeper.wait_until_it_says(f"{LEADS}, generation 3")
            completed(sleeper, job_id)
            assert not [path for path in folder.glob("scheduler*.log") if "tick.failed" in path.read_text()]


@contextmanager
def database(kind: str) -> Iterator[dict[str, str]]:
    if kind == "sqlite":
        yield {}
        return
    with running_server() as server:
        yield {"GAVEL_DATABASE_URL": server.new_database()}


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_api_processes_lose_nothing_and_wake_the_scheduler(folder: Path, kind: str) -> None:
    """1. A scheduler that looks once a minute unasked. 2. Two API processes take submits at once. 3. All end."""
    with database(kind) as where, ExitStack() as stack:
        settings = SETTINGS | where | {"GAVEL_IDLE_TICK_S": "60"}
        scheduler = stack.enter_context(Member(folder, settings))
        scheduler.wait_until_it_says(LEADS)
        apis = [stack.enter_context(Member(folder, settings, "--api-only")) for _ in range(2)]
        answers = submit_at_once(apis, each=25)
        assert {status for status, _, _ in answers} <= {201, 503}
        assert all(headers.get("retry-after") for status, _, headers in answers if status == 503)
        acknowledged = {body["id"] for status, body, _ in answers if status == 201}
        assert len(acknowledged) == sum(status == 201 for status, _, _ in answers) > 0
        with apis[0].client() as first, apis[1].client() as second:
            assert {job["id"] for job in first.jobs()} == {job["id"] for job in second.jobs()} >= acknowledged
            assert wait_until(lambda: any(job["state"] == "RUNNING" for job in second.jobs()), 45), "it was not woken"
            node = first.nodes()[0]["name"]
            assert first.cordon(node, wait_s=10)["state"] == "done", "a command is applied while the caller waits"
            second.cancel_many(sorted(acknowledged))
        assert not [api for api in apis if LEADS in api.output()]


def submit_at_once(apis: list[Member], *, each: int) -> list[tuple[int, dict[str, Any], httpx.Headers]]:
    answers: list[tuple[int, dict[str, Any], httpx.Headers]] = []

    def submit(api: Member) -> None:
        token = (api.state_dir / "operator.token").read_text().strip()
        with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            for _ in range(each):
                answer = client.post("/v1/jobs", json={"argv": TRAINS, "total_steps": 100_000})
                answers.append((answer.status_code, answer.json(), answer.headers))

    threads = [threading.Thread(target=submit, args=(api,)) for api in apis for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
