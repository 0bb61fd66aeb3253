"""What ended jobs have left goes after its time, however it was left."""

import os
from pathlib import Path

import pytest

from gavel.backends.disk import Disk
from gavel.backends.leftovers import Leftovers, delete
from gavel.config import Settings
from gavel.types import DiskState


def written(path: Path, content: bytes = b"12345") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_folders_that_a_job_has_closed_go_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    kept = written(tmp_path / "kept" / "file")
    closed = tmp_path / "job" / "a" / "b"
    written(closed / "c" / "file")
    (closed / "link").symlink_to(kept.parent)
    for folder in (closed / "c", closed, closed.parent):
        folder.chmod(0)
    delete(tmp_path / "job")
    assert kept.exists() and not (tmp_path / "job").exists()


def test_each_kind_goes_after_its_own_time(tmp_path: Path) -> None:
    """`old` has ended long ago, `new` lately, `live` not at all, and nobody knows `gone`."""
    settings = Settings(state_dir=tmp_path, keep_checkpoints_s=100.0, keep_logs_s=1e9)
    for name in ("old", "new", "live", "gone"):
        for path in (tmp_path / "checkpoints" / name / "1-1" / "w", tmp_path / "logs" / f"{name}.log"):
            written(path)
        os.utime(tmp_path / "checkpoints" / name, (0, 0))
        os.utime(tmp_path / "logs" / f"{name}.log", (2e9, 2e9))
    ended_at_s = {"old": 5.0, "new": 2e9}

    def ended_before(job_id: str, at_s: float) -> bool:
        return job_id == "gone" or ended_at_s.get(job_id, 1e12) < at_s

    Leftovers(settings).clear(ended_before, is_known=lambda job_id: job_id != "gone", origins=())
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"new", "live"}
    assert len(list((tmp_path / "logs").iterdir())) == 4


def test_checkpoints_of_unknown_jobs_stay_where_other_services_may_have_theirs(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    settings = Settings(
        state_dir=tmp_path / "state", backend="ray", ray_checkpoint_dir=str(shared), keep_checkpoints_s=0
    )
    written(shared / "theirs" / "1-1" / "w")
    os.utime(shared / "theirs", (0, 0))
    Leftovers(settings).clear(lambda *_: True, is_known=lambda _: False, origins=())
    assert (shared / "theirs").exists()


def test_checkpoints_of_a_slurm_cluster_are_deleted_at_their_own_url(tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    settings = Settings.model_validate(
        {"state_dir": tmp_path / "state", "backend": "slurm", "slurm": {"checkpoint_dir": url}}
    )
    for path in ("j1/1-1/w", "j2/1-1/w", "_outputs/j1/result"):
        written(tmp_path / "bucket" / path)
    Leftovers(settings).delete("j1")
    left = [str(each.relative_to(tmp_path / "bucket")) for each in (tmp_path / "bucket").rglob("*") if each.is_file()]
    assert left == ["j2/1-1/w"]


def test_what_jobs_left_in_the_place_of_each_region_goes(tmp_path: Path) -> None:
    ray = {"backend": "ray", "ray_checkpoint_dir": str(tmp_path / "ray")}
    settings = Settings(
        state_dir=tmp_path / "state", backend="several", backends={"here": {"backend": "local"}, "far": ray}
    )
    for path in ("state/checkpoints/j1/1-1/w", "ray/j1/2-1/w", "ray/_outputs/j1/w", "state/outputs/j1/w"):
        written(tmp_path / path)
    written(tmp_path / "state" / "regions" / "here" / "gangs" / "j1" / "fence.json")
    written(tmp_path / "state" / "regions" / "far" / "gangs" / "j1" / "fence.json")
    written(tmp_path / "state" / "regions" / "here" / "gangs" / "j2" / "fence.json")
    written(tmp_path / "state" / "regions" / "far" / "gangs" / "j2" / "3" / "gang.json")
    leftovers = Leftovers(settings)
    assert list(leftovers.ended_gangs(lambda *_: True)) == ["j1"]
    leftovers.delete("j1")
    assert not [each for each in tmp_path.rglob("w")]


def test_gangs_are_forgotten_once_only_their_fence_is_left(tmp_path: Path) -> None:
    written(tmp_path / "gangs" / "ended" / "fence.json")
    written(tmp_path / "gangs" / "ending" / "3" / "gang.json")
    written(tmp_path / "gangs" / "live" / "fence.json")
    leftovers = Leftovers(Settings(state_dir=tmp_path))
    assert list(leftovers.ended_gangs(lambda job_id, _: job_id != "live")) == ["ended"]


def test_a_budget_names_the_user_and_a_reserve_stops_everybody(tmp_path: Path) -> None:
    for job_id in ("a1", "a2", "b1"):
        written(tmp_path / "outputs" / job_id / "f", b"x" * 1000)
    settings = Settings(state_dir=tmp_path, user_disk_bytes=1500, disk_bytes=2500, disk_reserve_bytes=0)
    disk = Disk(settings, {"a1": "ann", "a2": "ann", "b1": "bob"}.get)
    assert disk.state() == DiskState()
    disk.measure()
    state = disk.state()
    assert list(state.over_budget) == ["ann"] and "may fill 0.00 MB" in state.over_budget["ann"]
    assert "disk_bytes" in state.low


@pytest.mark.parametrize(("free", "is_low"), [(10, True), (10_000, False)])
def test_the_reserve_is_at_most_a_twentieth_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_low: bool
) -> None:
    small = os.statvfs_result((1, 1, 20_000, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    low = Disk(Settings(state_dir=tmp_path), lambda _: None).state().low
    assert bool(low) == is_low and ("disk_reserve_bytes" in low) == is_low
