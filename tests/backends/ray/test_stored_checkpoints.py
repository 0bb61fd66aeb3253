"""Checkpoints at a URL, listed and downloaded: a real folder behind fsspec, reached as any other storage is."""

import io
import tarfile
from pathlib import Path

import pytest

from gavel.backends.checkpoints import Checkpoints
from gavel.backends.nodes.stored_checkpoints import StoredCheckpoints, checkpoints_of
from gavel.backends.nodes.transfers import RemoteCheckpoints
from gavel.config import Settings
from gavel.errors import BackendUnavailable, InvalidRequest, NotFound

pytest.importorskip("fsspec", reason="fsspec is not installed (extra [ray])")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A storage with two checkpoints of j1, and something else that it wrote."""
    stored = (tmp_path / "storage").as_uri()
    for name, weights in (("1-5", b"five"), ("2-30", b"thirty"), ("notes", b"")):
        folder = tmp_path / name
        (folder / "optimizer").mkdir(parents=True)
        (folder / "weights").write_bytes(weights)
        (folder / "optimizer" / "state").write_bytes(b"x" * 600_000)
        RemoteCheckpoints(stored).put("j1", folder)
    return stored


def test_the_newest_is_listed_first_with_its_size(url: str) -> None:
    listed = StoredCheckpoints(url).listing("j1")
    assert [(each.name, each.generation, each.step, each.size_bytes) for each in listed] == [
        ("2-30", 2, 30, 600_006),
        ("1-5", 1, 5, 600_004),
    ]
    assert all(each.written_at_s > 1e9 for each in listed)
    assert StoredCheckpoints(url).listing("j2") == StoredCheckpoints(url).listing("../j1") == ()


def test_an_archive_has_all_files_of_a_checkpoint(url: str) -> None:
    archive = b"".join(StoredCheckpoints(url).tar("j1", "2-30"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        contents = {each.name: file.extractfile(each).read() for each in file.getmembers()}  # type: ignore[union-attr]
    assert contents == {"2-30/optimizer/state": b"x" * 600_000, "2-30/weights": b"thirty"}


@pytest.mark.parametrize("name", ["9-9", "notes", "..", "../j1/1-5"])
def test_what_is_no_checkpoint_is_not_handed_out(url: str, name: str) -> None:
    with pytest.raises(NotFound, match="has no checkpoint"):
        StoredCheckpoints(url).tar("j1", name)


def test_no_other_job_begins_with_a_checkpoint_at_a_url(url: str) -> None:
    with pytest.raises(InvalidRequest, match="are at a URL, from where another job cannot take 2-30; download it"):
        StoredCheckpoints(url).copy("j1", "2-30")


def test_a_storage_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="storage of checkpoints does not answer"):
        StoredCheckpoints("no-such-storage://bucket").listing("j1")


def test_the_settings_say_where_checkpoints_are(url: str, tmp_path: Path) -> None:
    """1 at a URL, 2 in the folder that the nodes share, 3 in the state folder; outputs only in a folder."""
    at_url = Settings(state_dir=tmp_path, backend="ray", ray_checkpoint_dir=url)
    assert isinstance(checkpoints_of(at_url), StoredCheckpoints) and at_url.outputs_dir is None
    shared = Settings(state_dir=tmp_path, backend="ray", ray_checkpoint_dir=str(tmp_path / "shared"))
    assert isinstance(checkpoints_of(shared), Checkpoints) and shared.outputs_dir == tmp_path / "shared/_outputs"
    assert Settings(state_dir=tmp_path).outputs_dir == tmp_path / "outputs"
