"""The checkpoints of a job: the accepted one is named, all are downloaded as archives, of regular files only."""

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gavel.backends.checkpoints import Checkpoints
from gavel.cli import app
from tests.api.conftest import Service


@pytest.fixture(scope="module")
def ann(service: Service) -> tuple[str, httpx.Client]:
    return service.user()


@pytest.fixture
def job_id(service: Service, ann: tuple[str, httpx.Client]) -> str:
    """A job whose checkpoint 2-40 was accepted; 1-10 is kept, too."""
    job_id = str(ann[1].post("/v1/jobs", json={"argv": ["x"], "total_steps": 100}).json()["id"])
    folder = service.settings.state_dir / "checkpoints" / job_id
    for name in ("1-10", "2-40"):
        (folder / name / "sub").mkdir(parents=True)
        (folder / name / "weights").write_bytes(name.encode() * 1000)
        (folder / name / "sub" / "ü").write_text("u")
    (folder / ".3-50.tmp").mkdir()
    (folder / "4-60").symlink_to("/etc")
    job = service.store.job(job_id)
    service.change(replace(job, checkpoint="2-40", steps_done=40, generation=2))
    return job_id


def test_the_accepted_checkpoint_is_named_with_step_time_and_size(ann: tuple[str, httpx.Client], job_id: str) -> None:
    answer = ann[1].get(f"/v1/jobs/{job_id}/checkpoints").json()
    assert answer["accepted"] == "2-40"
    shown = [(x["name"], x["generation"], x["step"], x["size_bytes"], x["is_accepted"]) for x in answer["items"]]
    assert shown == [("2-40", 2, 40, 4001, True), ("1-10", 1, 10, 4001, False)]


def test_a_checkpoint_is_an_archive_of_its_files(service: Service, ann: tuple[str, httpx.Client], job_id: str) -> None:
    folder = service.settings.state_dir / "checkpoints" / job_id / "2-40"
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    answer = ann[1].get(f"/v1/jobs/{job_id}/checkpoints/2-40")
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert archive.getnames() == ["2-40/sub/ü", "2-40/weights"]
        weights = archive.extractfile("2-40/weights")
        assert weights is not None and weights.read() == b"2-40" * 1000


@pytest.mark.parametrize("name", ["3-50", "4-60", "9-9"])
def test_what_is_no_checkpoint_is_not_handed_out(ann: tuple[str, httpx.Client], job_id: str, name: str) -> None:
    assert ann[1].get(f"/v1/jobs/{job_id}/checkpoints/{name}").status_code == 404


def test_an_archive_of_a_file_that_shrinks_is_cut_off_and_not_filled_up(tmp_path: Path) -> None:
    (tmp_path / "j1" / "1-1").mkdir(parents=True)
    weights = tmp_path / "j1" / "1-1" / "weights"
    weights.write_bytes(b"x" * (1 << 20))
    archive = Checkpoints(tmp_path).tar("j1", "1-1")
    next(archive)
    os.truncate(weights, 10)
    with pytest.raises(OSError, match="has become shorter"):
        list(archive)


def test_the_commands_list_and_download_the_accepted_one(
    service: Service, ann: tuple[str, httpx.Client], job_id: str, tmp_path: Path
) -> None:
    given = ["--url", service.url, "--token", service.token(ann[0]), "job"]
    listed = CliRunner().invoke(app, [*given, "checkpoints", job_id])
    assert "2-40" in listed.output and "accepted" in listed.output, listed.output
    done = CliRunner().invoke(app, [*given, "download", job_id, "--checkpoint", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    with tarfile.open(tmp_path / "2-40.tar") as archive:
        assert archive.getnames() == ["2-40/sub/ü", "2-40/weights"]
    other = ann[1].post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    none = CliRunner().invoke(app, [*given, "download", other, "--checkpoint"])
    assert none.exit_code == 2 and "no accepted checkpoint yet" in none.output
