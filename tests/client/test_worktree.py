"""Which files of a working directory go with a job."""

import os
import subprocess
from pathlib import Path

import pytest

from gavel.client.worktree import CodeTooLarge, NoSuchRef, Worktree, worktree_at, worktree_of
from gavel.code_tree import CUT_LINE, DIFF_BYTES, FILES_MAX, bounded_diff

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **IDENTITY}
    ran = subprocess.run(["git", "-C", folder, *arguments], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, train_py="print(1)", lib__model_py="x = 1", gone_py="")
    git(tmp_path, "init", "-q", "project")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_in_git_it_is_what_git_tracks_as_it_is_now(repository: Path) -> None:
    """1 a clean tree, 2 a changed file, a deleted and a new one, 3 the new one is named unless it is the script."""
    clean = worktree_of(repository)
    assert sorted(clean.sizes) == ["gone.py", "lib/model.py", "train.py"]
    assert (clean.commit, clean.is_modified, clean.untracked) == (git(repository, "rev-parse", "HEAD"), False, ())
    write(repository, train_py="print(22)", new_py="")
    (repository / "gone.py").unlink()
    now = worktree_of(repository)
    assert dict(now.sizes) == {"lib/model.py": 5, "train.py": 9}
    assert now.is_modified and now.untracked == ("new.py",)
    write(repository.parent, outside_py="")
    (repository / "linked").symlink_to(repository / "lib")
    also = worktree_of(repository, ["./new.py", "linked/model.py", "../outside.py"])
    assert sorted(also.sizes) == ["lib/model.py", "new.py", "train.py"] and also.untracked == ("linked",)


def test_the_diff_says_what_the_commit_lacks(repository: Path, tmp_path: Path) -> None:
    """1 changed, deleted, binary and staged files, and the script that git does not track; what is left out is not in
    it; 2 with it `git apply` makes of the commit what runs; 3 a folder below has its own differences."""
    (repository / ".gavelignore").write_text("lib/\nnotes\n")
    write(repository, notes="x")
    (repository / "blob").write_bytes(bytes(range(256)))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    write(repository, train_py="print(22)\n", lib__model_py="x = 2\n", notes="y", new_py="n = 1\n", staged_py="s = 1\n")
    (repository / "gone.py").unlink()
    git(repository, "add", "staged.py")
    text = worktree_of(repository, ["new.py"]).diff.decode()
    for line in ("+print(22)", "deleted file mode", "+n = 1", "--- /dev/null\n+++ b/new.py", "+s = 1"):
        assert line in text
    assert "model.py" not in text and "notes" not in text
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    (tmp_path / "changes.diff").write_text(text)
    git(clone, "apply", "../changes.diff")
    kept = worktree_of(repository, ["new.py"]).sizes
    assert {name: (clone / name).read_bytes() for name in kept} == {
        name: (repository / name).read_bytes() for name in kept
    }
    (repository / "blob").write_bytes(bytes(256))
    assert "Binary files a/blob and b/blob differ" in worktree_of(repository).diff.decode()
    (repository / ".gavelignore").unlink()
    assert worktree_of(repository / "lib").diff.decode().startswith("diff --git a/model.py b/model.py")


def test_no_setting_of_git_changes_the_form_of_a_diff(repository: Path, tmp_path: Path) -> None:
    """Nor is a program run that the settings name."""
    for name, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.external", f"touch {tmp_path}/ran")):
        git(repository, "config", name, value)
    write(repository, train_py="print(22)\n")
    assert worktree_of(repository).diff.decode().startswith("diff --git a/train.py b/train.py\n")
    assert not (tmp_path / "ran").exists()


def test_a_long_diff_is_cut_after_a_whole_line_and_says_so(repository: Path) -> None:
    write(repository, train_py="one line\n" * 200_000, lib__model_py="z" * 3_000_000)
    text = worktree_of(repository).diff
    assert len(text) <= DIFF_BYTES + len(CUT_LINE) and text.endswith(b"\n" + CUT_LINE)
    assert b"zz" not in text, "no part of a line"
    assert bounded_diff(b"x" * DIFF_BYTES) == b"x" * DIFF_BYTES and bounded_diff(b"x" * (DIFF_BYTES + 1)) == CUT_LINE


def test_a_file_that_is_left_out_is_no_change(repository: Path) -> None:
    (repository / ".gavelignore").write_text("lib/\n.gavelignore\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "ignore")
    write(repository, lib__model_py="x = 2")
    assert not worktree_of(repository).is_modified


def test_a_folder_of_a_repository_has_its_own_files_only(repository: Path) -> None:
    assert list(worktree_of(repository / "lib").sizes) == ["model.py"]


def test_outside_git_it_is_all_that_the_ignore_file_leaves(tmp_path: Path) -> None:
    write(tmp_path, train_py="", data__large="x", runs__one__log="x", keep__log="y", __gavel__token="t")
    write(tmp_path, **{".gavel__operator.token": "secret", ".venv__bin__python": "", "lib____pycache____a.pyc": ""})
    (tmp_path / ".gavelignore").write_text("# large\n/data/\n*log\n!keep/log\n")
    (tmp_path / "link").symlink_to("train.py")
    (tmp_path / "folder").symlink_to("keep")
    os.mkfifo(tmp_path / "pipe")
    tree = worktree_of(tmp_path)
    kept = [path for path in tree.sizes if "pycache" not in path and "gavel/token" not in path]
    assert kept == [".gavelignore", "folder", "keep/log", "link", "train.py"]
    assert tree.commit == "" and not tree.is_modified
    by_path = {each.path: each for each in tree.files()}
    assert (by_path["link"].target, by_path["folder"].target, by_path["link"].chunks) == ("train.py", "keep", ())


def test_the_ignore_file_counts_in_git_as_well(repository: Path) -> None:
    (repository / ".gavelignore").write_text("lib/\n")
    assert sorted(worktree_of(repository).sizes) == ["gone.py", "train.py"]


def test_a_folder_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, data__one="x" * 3000, train_py="y")
    with pytest.raises(CodeTooLarge, match=r"data/ .*\.gavelignore.*--no-snapshot"):
        worktree_of(tmp_path).check_size(1000)
    many = Worktree(folder=tmp_path, sizes={f"d/{index}": 0 for index in range(FILES_MAX + 1)})
    with pytest.raises(CodeTooLarge, match=r"most are in d/ \(50001\)"):
        many.check_size(1000)


def test_at_a_ref_it_is_what_git_has_there_and_the_repository_is_left_as_it_is(repository: Path) -> None:
    """1 the files of a tag after later edits, 2 a folder below, 3 nothing of it stays, 4 the index is untouched."""
    git(repository, "tag", "v1")
    first = git(repository, "rev-parse", "HEAD")
    write(repository, train_py="print(22)", lib__later_py="")
    (repository / ".gavelignore").write_text("gone.py")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    write(repository, train_py="print(333)", staged_py="")
    git(repository, "add", "staged.py")
    before = git(repository, "status", "--porcelain")
    with worktree_at(repository, "v1") as old:
        assert dict(old.sizes) == {"gone.py": 0, "lib/model.py": 5, "train.py": 8}
        assert (old.commit, old.is_modified, old.untracked) == (first, False, ())
        assert (old.folder / "train.py").read_text() == "print(1)"
    assert not old.folder.exists()
    with worktree_at(repository, "HEAD") as new:
        assert new.sizes["train.py"] == 9 and "gone.py" not in new.sizes
    with worktree_at(repository / "lib", "v1") as below:
        assert list(below.sizes) == ["model.py"]
    assert git(repository, "status", "--porcelain") == before


def test_a_ref_or_folder_that_git_does_not_have_is_named(repository: Path, tmp_path: Path) -> None:
    (repository / "new").mkdir()
    for folder, ref, message in (
        (repository, "v9", "no commit, tag or branch v9"),
        (repository, "--all", "no commit, tag or branch --all"),
        (repository / "new", "HEAD", "is not a part of HEAD"),
        (tmp_path, "HEAD", "no commit, tag or branch HEAD"),
    ):
        with pytest.raises(NoSuchRef, match=message), worktree_at(folder, ref):
            pass
    with worktree_at(repository, "HEAD") as tree, pytest.raises(CodeTooLarge, match="project at HEAD: "):
        tree.check_size(3)
