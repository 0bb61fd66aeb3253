"""Purging an ended job: its files, its rows, and who may."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gavel.backends.leftovers import Leftovers
from gavel.cli import app
from gavel.client import Client
from gavel.types import JobState
from tests.api.conftest import Service

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


def ended(service: Service, job_id: str) -> None:
    service.change(replace(service.store.job(job_id), state=JobState.CANCELLED, finished_at_s=1.0))


def files_of(state_dir: Path, job_id: str) -> list[Path]:
    """Write a file in each place where a job leaves some."""
    places = ("checkpoints/{}/1-5/w", "outputs/{}/o", "work/{}/x/y", "logs/{}.log", "logs/{}.log.1")
    paths = [state_dir / place.format(job_id) for place in places]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return paths


def test_a_user_purges_a_job_and_nothing_of_it_is_left(service: Service) -> None:
    _, ann = service.user()
    job_id, other = (ann.post("/v1/jobs", json=PROGRAM).json()["id"] for _ in range(2))
    paths, others = (files_of(service.settings.state_dir, each) for each in (job_id, other))
    ended(service, job_id)
    assert ann.post(f"/v1/jobs/{job_id}/purge").json() == {"id": job_id, "freed_bytes": 25}
    assert not any(path.exists() for path in paths) and all(path.exists() for path in others)
    assert ann.get(f"/v1/jobs/{job_id}").status_code == ann.post(f"/v1/jobs/{job_id}/purge").status_code == 404
    refused = ann.post(f"/v1/jobs/{other}/purge")
    assert refused.status_code == 409 and "cancel it" in refused.json()["detail"]


def test_the_command_purges_and_the_client_says_what_is_free(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    name, ann = service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    ended(service, job_id)
    monkeypatch.setenv("GAVEL_URL", service.url)
    monkeypatch.setenv("GAVEL_TOKEN", service.token(name))
    done = CliRunner().invoke(app, ["job", "purge", job_id])
    assert done.exit_code == 0 and f"{job_id} is purged; 0 bytes" in done.output
    with Client(service.url, service.token(name)) as client:
        assert [job["id"] for job in client.jobs()] == []


def test_a_copy_of_a_checkpoint_stays_while_a_job_begins_with_it(service: Service) -> None:
    leftovers, state_dir = Leftovers(service.settings), service.settings.state_dir
    for name in ("1-5", "1-6"):
        (state_dir / "checkpoints" / ".copies" / "origin" / name).mkdir(parents=True)
    leftovers.delete("origin", {"origin/1-5"})
    assert [path.name for path in (state_dir / "checkpoints" / ".copies" / "origin").iterdir()] == ["1-5"]
