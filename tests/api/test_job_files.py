"""The files of a job's output folder: listed and downloaded, and nothing else of the machine, whatever the job does."""

import os
import stat
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gavel.backends.job_folder import DEPTH_MAX, ENTRIES_MAX, entries
from gavel.backends.output_quota import OutputQuota
from gavel.backends.outputs import Outputs
from gavel.cli import app
from gavel.client import Client
from tests.api.conftest import Service


@pytest.fixture(scope="module")
def ann(service: Service) -> tuple[str, httpx.Client]:
    return service.user()


@pytest.fixture
def job_id(ann: tuple[str, httpx.Client]) -> str:
    return str(ann[1].post("/v1/jobs", json={"argv": ["x"], "total_steps": 10}).json()["id"])


@pytest.fixture
def folder(service: Service, job_id: str) -> Path:
    made = service.settings.state_dir / "outputs" / job_id
    made.mkdir(parents=True)
    return made


def test_files_are_listed_with_their_sizes_and_downloaded_whole(
    ann: tuple[str, httpx.Client], job_id: str, folder: Path, service: Service
) -> None:
    (folder / "curves").mkdir()
    (folder / "curves" / "ü #1?.csv").write_bytes(b"a,b\n")
    (folder / "model.pt").write_bytes(bytes(range(256)) * 1000)
    listing = ann[1].get(f"/v1/jobs/{job_id}/files").json()
    assert [(file["path"], file["size_bytes"]) for file in listing["items"]] == [
        ("curves/ü #1?.csv", 4),
        ("model.pt", 256_000),
    ]
    assert listing["total_bytes"] == 256_004 and listing["limit_bytes"] == service.settings.output_bytes
    assert (listing["left_out"], listing["is_cut"], listing["kept_until_s"]) == (0, False, None)
    answer = ann[1].get(f"/v1/jobs/{job_id}/files/content?path=model.pt")
    assert answer.content == bytes(range(256)) * 1000
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert "attachment" in answer.headers["Content-Disposition"]
    assert ann[1].get(f"/v1/jobs/{job_id}/files/content", params={"path": "curves/ü #1?.csv"}).content == b"a,b\n"


def test_a_range_of_a_file_is_sent(ann: tuple[str, httpx.Client], job_id: str, folder: Path) -> None:
    (folder / "f").write_bytes(b"0123456789")
    part = ann[1].get(f"/v1/jobs/{job_id}/files/content?path=f", headers={"Range": "bytes=3-5"})
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"345", "bytes 3-5/10")
    assert ann[1].get(f"/v1/jobs/{job_id}/files/content?path=f", headers={"Range": "bytes=99-"}).status_code == 416


def test_a_job_that_has_written_nothing_has_no_files(ann: tuple[str, httpx.Client], job_id: str) -> None:
    assert ann[1].get(f"/v1/jobs/{job_id}/files").json()["items"] == []
    assert ann[1].get(f"/v1/jobs/{job_id}/files/content?path=f").status_code == 404


def test_other_users_see_no_files(service: Service, job_id: str, folder: Path) -> None:
    (folder / "secret").write_text("mine")
    bob = service.user()[1]
    assert bob.get(f"/v1/jobs/{job_id}/files").status_code == 404
    assert bob.get(f"/v1/jobs/{job_id}/files/content?path=secret").status_code == 404


PATHS = (
    "../../operator.token",
    "/etc/passwd",
    "a/../../f",
    "..",
    ".",
    "",
    "a//f",
    "f/",
    "f\0",
    "link",
    "to/passwd",
    "pipe",
    "a",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_folder(ann: tuple[str, httpx.Client], job_id: str, folder: Path, path: str) -> None:
    """The job may have made anything in it: links, links to folders, pipes that nobody writes to."""
    (folder / "a").mkdir()
    (folder / "f").write_text("f")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "to").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    answer = ann[1].get(f"/v1/jobs/{job_id}/files/content", params={"path": path})
    assert answer.status_code == 404 and "has no output file" in answer.json()["detail"]


def test_a_folder_that_became_a_link_shows_nothing(
    ann: tuple[str, httpx.Client], job_id: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("f")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert ann[1].get(f"/v1/jobs/{job_id}/files").json()["items"] == []
    assert ann[1].get(f"/v1/jobs/{job_id}/files/content?path=f").status_code == 404


def test_what_cannot_be_shown_is_counted(ann: tuple[str, httpx.Client], job_id: str, folder: Path) -> None:
    (folder / "link").symlink_to("f")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("x")
    (folder / "f").write_text("f")
    listing = ann[1].get(f"/v1/jobs/{job_id}/files").json()
    assert [file["path"] for file in listing["items"]] == ["f"] and listing["left_out"] == 3


def test_a_folder_is_looked_at_to_a_bounded_depth_and_number(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(DEPTH_MAX + 20):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "f").write_text("f")
    (folder_entry,) = entries(str(tmp_path))
    assert stat.S_ISDIR(folder_entry[1].st_mode) and folder_entry[0].count("/") == DEPTH_MAX - 1
    wide = tmp_path / "wide"
    wide.mkdir()
    for index in range(ENTRIES_MAX + 5):
        (wide / str(index)).symlink_to("x")
    assert len(list(entries(str(wide)))) == ENTRIES_MAX


def test_a_quota_is_a_sentence_once_it_is_exceeded(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)
    assert OutputQuota(str(tmp_path), 3_000_000).problem() == OutputQuota(str(tmp_path), 0).problem() == ""
    quota = OutputQuota(str(tmp_path), 2_000_000)
    assert "holds 3.0 MB, more than the 2.0 MB that a job may keep" in quota.problem()
    assert quota.problem() == "", "it does not look again at once"


def test_folders_of_jobs_that_ended_long_ago_are_deleted(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "outputs")
    outputs.clear(lambda *_: True, 60.0)  # no folder yet
    for name in ("old", "running", "new"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        (tmp_path / "outputs" / name / "f").write_text("f")
    for name in ("old", "running"):
        os.utime(tmp_path / "outputs" / name, (0, 0))
    outputs.clear(lambda job_id, _: job_id != "running", 60.0)
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == ["new", "running"]


def test_the_client_and_the_commands_download_them(
    service: Service, ann: tuple[str, httpx.Client], job_id: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "one two").write_text("12")
    (folder / "big").write_bytes(b"x" * 300_000)
    token = service.token(ann[0])
    with Client(service.url, token) as client:
        assert [file["path"] for file in client.job_files(job_id)["items"]] == ["big", "sub/one two"]
        assert b"".join(client.read_file(job_id, "big", offset=299_990)) == b"x" * 10
    given = ["--url", service.url, "--token", token, "job"]
    for path in folder.iterdir():
        path.rename(folder.parent / path.name)
    empty = CliRunner().invoke(app, [*given, "download", job_id, "-o", str(tmp_path)])
    assert empty.exit_code == 0 and "the job has written no file to job.output_dir" in empty.output
    for name in ("big", "sub"):
        (folder.parent / name).rename(folder / name)
    assert "no metric was reported" in CliRunner().invoke(app, [*given, "metrics", job_id]).output
    listed = CliRunner().invoke(app, [*given, "files", job_id])
    assert "sub/one two" in listed.output and "300,000" in listed.output, listed.output
    done = CliRunner().invoke(app, [*given, "download", job_id, "sub/", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "sub" / "one two").read_text() == "12" and not (tmp_path / "big").exists()
    assert CliRunner().invoke(app, [*given, "download", job_id, "-o", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "big").stat().st_size == 300_000
    assert [path.name for path in tmp_path.glob(".*")] == []
    missing = CliRunner().invoke(app, [*given, "download", job_id, "gone"])
    assert missing.exit_code == 2 and "no output file or folder gone" in missing.output
