"""The scheduler beside the API: one dies without the other, or both end in order; a job never notices."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from gavel.demo.service import ServiceProcess, wait_until
from tests.e2e.processes import LEADS, LIMIT_S, Member
from tests.e2e.test_standby import SETTINGS, a_job_that_trains, completed


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder; no gang is left in it."""
    yield tmp_path / "state"
    ServiceProcess(tmp_path / "state", {}).stop()


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_scheduler_that_is_killed_is_started_again_and_its_gangs_run_on(folder: Path) -> None:
    """1. A job trains. 2. kill -9 of the scheduler: it is said. 3. It leads again. 4. SIGTERM: in order."""
    with Member(folder, SETTINGS) as service:
        with a_job_that_trains(service) as job_id:
            first = service.scheduler()
            assert health(service) == {"status": "ok"}
            first.kill()
            assert wait_until(lambda: "signal SIGKILL" in health(service).get("note", ""), LIMIT_S)
            service.wait_until_it_says(f"{LEADS}, generation 2")
            assert "signal SIGKILL" in health(service)["note"], "for a minute it is news"
            with service.client() as client:
                assert any("signal SIGKILL" in note for note in client.cluster()["notes"]), "on the dashboard, too"
            completed(service, job_id)
            assert httpx.get(f"{service.url}/readyz", timeout=60).status_code == 200
        second = service.scheduler()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(LIMIT_S) == 0
        assert not second.is_running() and "stopped; gangs checkpoint" in service.output()
        assert not (folder / "service.json").exists()


def health(service: Member) -> dict[str, str]:
    answer = httpx.get(f"{service.url}/healthz", timeout=60)
    assert answer.status_code == 200
    return dict(answer.json())


@pytest.mark.full
def test_a_scheduler_dies_with_its_service_however_that_ends(folder: Path) -> None:
    with Member(folder, SETTINGS) as service:
        service.wait_until_it_says(LEADS)
        scheduler = service.scheduler()
        solvers = scheduler.children(recursive=True)
        service.kill()
        gone, alive = psutil.wait_procs([scheduler, *solvers], LIMIT_S)
        assert scheduler in gone and not alive
