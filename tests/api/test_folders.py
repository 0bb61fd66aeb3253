"""Which files of the service's machine a submission may name: refused with the field, and what to do instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.sandbox import bubblewrap
from tests.api.conftest import Service

JOB: dict[str, Any] = {"argv": ["x"], "total_steps": 1}
needs_bubblewrap = pytest.mark.skipif(bool(bubblewrap().problem), reason="bubblewrap makes no sandbox here")


def named(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """A submission for each way to name a file, with the field that it is refused by."""
    return [
        ("workdir", {"workdir": str(path)}),
        ("python", {"python": str(path / "bin" / "python")}),
        ("data.words", {"data": {"words": str(path)}}),
        ("argv", {"argv": ["python", str(path / "train.py")]}),
        ("argv", {"argv": [str(path / "run")]}),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an environment whose program is a link to the system's."""
    made = tmp_path / "ann" / "project"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to("/usr/bin/env")
    return made


@needs_bubblewrap
def test_without_a_setting_only_the_operator_names_files(start: Callable[..., Service], folder: Path) -> None:
    service = start(job_folders="")
    ann, operator = service.user()[1], service.operator()
    for field, fields in named(folder):
        assert operator.post("/v1/jobs", json={**JOB, **fields}).status_code == 201
        refused = ann.post("/v1/jobs", json={**JOB, **fields})
        assert refused.status_code == 422, (field, fields)
        says = refused.json()["detail"]
        assert says.startswith(f"{field}: {folder}") and "yours may name none; " in says and "job_folders" in says
    code = {"code": {"digest": "0" * 64}}
    says = ann.post("/v1/jobs", json={**JOB, "workdir": str(folder), **code}).json()["detail"]
    assert not says.startswith("workdir")  # its files are copied: the service does not open the folder


@needs_bubblewrap
def test_a_setting_opens_the_folders_of_each_user_and_no_link_leads_out(
    start: Callable[..., Service], folder: Path, tmp_path: Path
) -> None:
    service = start(job_folders=f"{tmp_path}/{{user}}")
    name, ann = service.user()
    (tmp_path / "ann").rename(tmp_path / name)
    mine = tmp_path / name / "project"
    for _, fields in named(mine):
        assert ann.post("/v1/jobs", json={**JOB, **fields}).status_code == 201
    (tmp_path / name / "link").symlink_to("/var")
    refused = ann.post("/v1/jobs", json={**JOB, "workdir": str(tmp_path / name / "link")})
    assert f"those that your jobs may name ({tmp_path}/{name})" in refused.json()["detail"]
    limits = ann.get("/v1/code-versions").json()
    assert str(tmp_path / name) in limits["folders"] and "/usr" in limits["folders"]


def test_where_nothing_bounds_jobs_nothing_is_refused(start: Callable[..., Service], folder: Path) -> None:
    service = start(job_folders="", isolation="none")
    ann = service.user()[1]
    assert ann.post("/v1/jobs", json={**JOB, "workdir": str(folder)}).status_code == 201
    assert ann.get("/v1/code-versions").json()["folders"] == ["/"]
    in_image = ann.post("/v1/jobs", json={**JOB, "workdir": str(folder), "image": "docker.io/library/busybox"})
    assert in_image.json()["detail"].startswith("workdir: ")  # its container sees what it names
