"""What git says of a working directory. Nothing of it changes the repository."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from gavel.code_tree import DIFF_BYTES, bounded_diff

PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
OF_FOLDER = ("--relative", "--ignore-submodules=untracked")


def git_output(folder: Path, *arguments: str, **variables: str) -> str | None:
    """Return what git prints; None where there is no git or no repository, or it fails."""
    program = shutil.which("git")
    if program is None:
        return None
    ran = subprocess.run(
        (program, "-C", str(folder), *arguments),
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    return os.fsdecode(ran.stdout) if ran.returncode == 0 else None


def diff_of(folder: Path, new: Iterable[str], is_left_out: Callable[[str], object]) -> bytes:
    """Return how the files of a folder differ from the commit, as `git diff` writes it, bounded (`bounded_diff`).

    Of binary files it has the names. `new` are files that git does not track; a path that `is_left_out` does not count.
    """
    changed = git_output(folder, "diff", "--name-only", "-z", *OF_FOLDER, "HEAD", "--", ".") or ""
    names = [name for name in changed.split("\0") if name]
    left_out = [f":(exclude,literal){name}" for name in names if is_left_out(name)]
    text = b""
    if len(left_out) < len(names):
        text = _beginning(folder, "diff", *PLAIN, *OF_FOLDER, "--submodule=diff", "HEAD", "--", ".", *left_out)
    for name in sorted(new):
        if len(text) <= DIFF_BYTES:
            text += _beginning(folder, "diff", *PLAIN, "--no-index", "--", os.devnull, name)
    return bounded_diff(text)


def _beginning(folder: Path, *arguments: str) -> bytes:
    """Return what git prints, of much only the beginning, but more than DIFF_BYTES: then the process is ended."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    with subprocess.Popen(
        (shutil.which("git") or "git", "-C", str(folder), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment,
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read(DIFF_BYTES + 1)
        process.kill()
    return text
