"""What is mounted in a sandbox, in which order, and which devices and files of the node are among it."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import launch, pci, sandbox_mounts
from gavel.backends.harness import find, gang
from gavel.backends.sandbox_view import arguments, view_of
from tests.backends.clusters import LocalHarness

FLAGS = {"--bind": "rw", "--ro-bind": "ro", "--tmpfs": ""}
FOLDERS = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/f/g"]


def kinds_of(folders: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(folders), st.sampled_from(["ro", "rw"]))


@settings(max_examples=60)
@given(
    shown=kinds_of(FOLDERS),
    own=kinds_of(["a/b", "a/b/c", "a/d", "e/f/g"]),
    hidden=st.sets(st.sampled_from(["a", "e/f"])),
)
def test_each_folder_is_mounted_as_the_nearest_that_names_it(
    shown: dict[str, str], own: dict[str, str], hidden: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The last mount of a folder, or of one around it, is what a job sees there; none comes before one around it."""
    root = tmp_path_factory.getbasetemp() / "mounted"
    for each in FOLDERS:
        (root / each).mkdir(parents=True, exist_ok=True)
    given_launch = {
        "ranks": [{}],
        "sandbox": {"tmp": str(root), "devices": [], "mentioned": [], "shown": placed(root, shown)},
        "named": {},
        "cwd": "/nowhere",
        "job_folders": ["/"],
        "own": placed(root, own),
        "hidden": [str(root / each) for each in hidden],
    }
    words = [*arguments(given_launch, view_of(given_launch, {}))]
    mounts = {path: flag for flag, path in pairwise(words) if path.startswith(f"{root}/") and flag in FLAGS}
    order = [*mounts]
    assert order == sorted(order, key=lambda path: path.split("/"))
    for each in FOLDERS:
        assert seen(each, mounts, root) == wanted(each, shown, own, hidden), (each, shown, own, hidden)


def placed(root: Path, kinds: dict[str, str]) -> dict[str, str]:
    return {str(root / path): kind for path, kind in kinds.items()}


def around(path: str) -> list[str]:
    """The path and the folders that it is in, the nearest first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def seen(path: str, mounts: dict[str, str], root: Path) -> str:
    return next((FLAGS[mounts[at]] for each in around(path) if (at := str(root / each)) in mounts), "")


def wanted(path: str, shown: dict[str, str], own: dict[str, str], hidden: set[str]) -> str:
    """Own folders count before hidden ones, and these before those that are shown; a shown one in a hidden is not."""
    for each in around(path):
        is_private = bool({*around(each)} & hidden) and not {*around(each)} & {*own}
        if each in own or each in hidden:
            return own.get(each, "")
        if each in shown and not is_private:
            return shown[each]
    return ""


def test_a_user_of_jobs_may_pass_every_folder_around_what_is_mounted(tmp_path: Path) -> None:
    """Folders that bubblewrap makes itself, for a mount deeper down, are closed by the umask of the service."""
    device, own = "/dev/dri/renderD128", str(tmp_path)
    given_launch = {
        "ranks": [{"runs_as": {"uid": 2_000_000, "gid": 2_000_000}}],
        "sandbox": {"tmp": own, "devices": [device], "mentioned": [], "shown": {}},
        **{"named": {}, "cwd": own, "job_folders": ["/"], "own": {own: "rw"}, "hidden": []},
    }
    words = [*arguments(given_launch, view_of(given_launch, {}))]
    places = {words[at + 2]: at for at, word in enumerate(words) if word in ("--bind", "--dev-bind")}
    made = {words[at + 3]: at for at in range(len(words)) if words[at : at + 3] == ["--perms", "0755", "--dir"]}
    assert {*places} >= {"/var/tmp", device, own}
    for path, at in places.items():
        folders = {*map(str, Path(path).parents)} - {"/"}
        assert [each for each in folders if made.get(each, at) >= at] == [], path


# --- devices and files of the node --------------------------------------------------------------------------------


def test_only_the_gpus_of_the_job_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n"
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(text)
    monkeypatch.setattr(sandbox_mounts, "NVIDIA_GPUS", tmp_path)
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    nodes = sandbox_mounts.device_nodes({"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-0"})
    assert [path for path in nodes if path[-1].isdigit()] == ["/dev/nvidia0", "/dev/nvidia2"]
    assert "/dev/nvidiactl" in nodes
    assert sandbox_mounts.device_nodes({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    assert sandbox_mounts.device_nodes({}) == []


def test_of_amd_s_gpus_only_those_that_are_leased_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "PCI_DEVICES", tmp_path)
    for number, unique_id in enumerate(("de8287300da37c72", "1f9de0957d137942")):
        folder = tmp_path / f"0000:8{number}:00.0"
        (folder / "drm" / f"renderD{128 + number}").mkdir(parents=True)
        (folder / "unique_id").write_text(f"{unique_id}\n")
    present = {"/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"}
    monkeypatch.setattr(os.path, "exists", present.__contains__)
    shown = sandbox_mounts.device_nodes({"ROCR_VISIBLE_DEVICES": "GPU-1F9DE0957D137942"})
    assert shown == ["/dev/dri/renderD129", "/dev/kfd"]


def test_private_files_of_the_system_are_those_that_not_everybody_may_read(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("")
    (tmp_path / "closed").write_text("")
    (tmp_path / "closed").chmod(0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "folder" / "in").write_text("")
    (tmp_path / "link").symlink_to("closed")
    assert sorted(sandbox_mounts.private_files(str(tmp_path))) == [str(tmp_path / "closed"), str(tmp_path / "folder")]


def test_what_a_job_names_in_words_and_variables_is_shown_to_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "data").mkdir()
    words = ["python", str(tmp_path / "train.py"), f"--data={tmp_path}/data", "--out", str(tmp_path / "missing"), "/"]
    assert sandbox_mounts.named_paths(words, {}) == {str(tmp_path), str(tmp_path / "data")}
    variables = {"PYTHONPATH": f"{tmp_path}/data:/home", "NAME": "a/b", "PATH": "/usr/bin"}
    assert sandbox_mounts.named_paths((), variables) == {str(tmp_path / "data"), "/usr/bin"}


def test_each_link_to_an_interpreter_shows_the_installation_it_leads_to(tmp_path: Path) -> None:
    for name in ("venv", "versions/3.11", "real"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python").write_text("")
    (tmp_path / "versions" / "3.11" / "bin" / "python").symlink_to(tmp_path / "real" / "bin" / "python")
    (tmp_path / "venv" / "bin" / "python").symlink_to("../../versions/3.11/bin/python")
    shown = {*sandbox_mounts.interpreter_folders(str(tmp_path / "venv" / "bin" / "python"))}
    assert shown == {str(tmp_path / "venv"), str(tmp_path / "versions" / "3.11"), str(tmp_path / "real")}


def test_a_launch_says_what_the_gang_sees(harness: LocalHarness) -> None:
    """Its own folders can be written, but not that of service and supervisor."""
    places = harness.backend._folder.places("j1", 1)
    (_, launched) = gang(harness, "j1")
    made = launch._own_folders(launched, places)  # type: ignore[arg-type]
    assert made[str(places.gang)] == "ro" and made[f"{places.gang}/job"] == made[str(places.work)] == "rw"
    assert find(harness.backend.observe(), "j1") is None
