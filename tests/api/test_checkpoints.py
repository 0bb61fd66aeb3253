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
from gavel.types import WrittenCheckpoint
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


def test_the_newest_ones_say_what_they_took_and_why_they_come_so_often(
    service: Service, ann: tuple[str, httpx.Client], job_id: str
) -> None:
    job = service.store.job(job_id)
    first = WrittenCheckpoint(name="1-5", step=5, at_s=50.0, size_bytes=1_000_000, written_s=0.5, every_s=60.0)
    last = WrittenCheckpoint(
        name="2-40",
        step=40,
        at_s=90.0,
        size_bytes=2_000_000,
        written_s=1.25,
        cost_s=0.25,
        every_s=134.0,
        time_to_loss_s=36_000.0,
    )
    measured = {"checkpoint_s": 1.25, "checkpoint_bytes": 2_000_000, "checkpoint_every_s": 134.0}
    service.change(replace(job, checkpoints_written=(first, last), **measured))  # type: ignore[arg-type]
    written = ann[1].get(f"/v1/jobs/{job_id}/checkpoints").json()["written"]
    assert [each["name"] for each in written] == ["2-40", "1-5"], "the second one is not kept any more"
    assert (written[0]["cost_s"], written[0]["time_to_loss_s"], written[1]["cost_s"]) == (0.25, 36_000.0, None)
    shown = ann[1].get(f"/v1/jobs/{job_id}").json()
    assert (shown["checkpoint_cost_s"], shown["time_to_loss_s"]) == (0.25, 36_000.0)
    given = ["--url", service.url, "--token", service.token(ann[0]), "job"]
    lines = CliRunner().invoke(app, [*given, "show", job_id]).output
    for text in (
        "2.0 MB, written in 1.2 s, one every 134 s",
        "the training stands still for 0.25 s for one, and a gang of its size is lost every 10 h",
        "2-40, 2.0 MB, in 1.25 s, of which 0.25 s without training",
        "1-5, 1.0 MB, in 0.50 s",
    ):
        assert text in lines, lines
    assert "1.25 s" in CliRunner().invoke(app, [*given, "checkpoints", job_id]).output


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
