"""The files of a working directory that go with a job: what git tracks, or all that .gavelignore leaves."""

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gavel.client.git import diff_of, git_output
from gavel.code_tree import CHUNK_BYTES, FILES_MAX, TreeFile, digest_of, too_large

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".gavelignore"
NEVER = (".git", ".gavel/", ".venv/", "__pycache__/")


class CodeTooLarge(ValueError):
    """The working directory has more than the service takes; the message names the largest folders."""


class NoSuchRef(ValueError):
    """Git has no such commit, tag or branch, or no such folder there; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """What is to be stored of a folder. `sizes`: bytes by path below it; `untracked`: files that git does not know.

    `diff` is how the files differ from `commit`, as `git diff` writes it, bounded; empty outside git.
    `title` is what people call the folder, if it is a temporary one.
    """

    folder: Path
    sizes: Mapping[str, int]
    commit: str = ""
    diff: bytes = b""
    untracked: tuple[str, ...] = ()
    title: str = ""

    @property
    def is_modified(self) -> bool:
        """Whether the files differ from the commit."""
        return bool(self.diff)

    def check_size(self, limit_bytes: int) -> None:
        """Raise CodeTooLarge if the service would refuse it."""
        if problem := too_large(self.sizes, limit_bytes):
            cure = f"list what the job does not need in {IGNORE_FILE}, or use the folder itself with --no-snapshot"
            raise CodeTooLarge(f"{self.title or self.folder}: {problem}; {cure}")

    def files(self) -> Iterator[TreeFile]:
        """Yield each file with the digests of its chunks, read now. Raises OSError."""
        for path in self.sizes:
            yield _described(self.folder, path)

    def chunks(self, files: Iterable[TreeFile], wanted: Iterable[str]) -> Iterator[bytes]:
        """Yield the contents of the wanted chunks, in order of the files. Raises OSError."""
        left = set(wanted)
        for each in files:
            for index, chunk in enumerate(each.chunks):
                if chunk in left:
                    left.remove(chunk)
                    yield _read(self.folder / each.path, index)


def worktree_of(folder: Path, also: Iterable[str] = ()) -> Worktree:
    """Return the files of a folder; those of `also` (paths below it) in any case. Raises OSError.

    In a git repository they are the files that git tracks below the folder, as they are now, elsewhere all files. In
    both, what `.gavelignore` names (in the form of .gitignore) is left out.
    """
    ignored, also = _ignored(folder), list(_inside(folder, also))
    tracked = git_output(folder, "ls-files", "-z", "--cached", "--recurse-submodules")
    if tracked is None:
        return Worktree(folder=folder, sizes=_sizes(folder, [*_walked(folder, ignored), *also]))
    paths = [path for path in tracked.split("\0") if path and not ignored.match_file(path)]
    commit = (git_output(folder, "rev-parse", "--verify", "-q", "HEAD") or "").strip()
    new = set(also) - set(tracked.split("\0"))
    diff = diff_of(folder, new, lambda path: path not in also and ignored.match_file(path)) if commit else b""
    others = (git_output(folder, "ls-files", "-z", "--others", "--exclude-standard") or "").split("\0")
    return Worktree(
        folder=folder,
        sizes=_sizes(folder, [*paths, *also]),
        commit=commit,
        diff=diff,
        untracked=tuple(path for path in others if path and not ignored.match_file(path) and path not in set(also)),
    )


@contextmanager
def worktree_at(folder: Path, ref: str, **variables: str) -> Iterator[Worktree]:
    """Yield the files that git has of a folder at a commit, tag or branch, whatever lies there now.

    They are in a temporary folder until the end of the block. `variables` are for git. Raises NoSuchRef, OSError.
    """
    asked = ("rev-parse", "--verify", "-q", "--end-of-options", f"{ref}^{{commit}}")
    commit = (git_output(folder, *asked, **variables) or "").strip()
    if not commit:
        raise NoSuchRef(f"git has no commit, tag or branch {ref} in {folder}")
    top, below = (git_output(folder, "rev-parse", f"--show-{each}") or "" for each in ("toplevel", "prefix"))
    with tempfile.TemporaryDirectory(prefix="gavel-code-") as temporary:
        place, index = Path(temporary, "files"), {**variables, "GIT_INDEX_FILE": str(Path(temporary, "index"))}
        place.mkdir()
        repository = Path(top.removesuffix("\n"))
        if git_output(repository, "read-tree", f"{commit}:{below.removesuffix(chr(10))}", **index) is None:
            raise NoSuchRef(f"{folder} is not a part of {ref}")
        if git_output(repository, "checkout-index", "--all", f"--prefix={place}/", **index) is None:
            raise OSError(f"git cannot write the files of {ref} to {place}")
        sizes = _sizes(place, _walked(place, _ignored(place)))
        yield Worktree(folder=place, sizes=sizes, commit=commit, title=f"{folder} at {ref}")


def _inside(folder: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that lead below the folder, and through no link: a link goes with a job as a link."""
    top = os.path.realpath(folder)
    for path in map(os.path.normpath, paths):
        above = os.path.dirname(path)
        is_below = path.split("/")[0] != ".."
        if is_below and os.path.realpath(folder / above) == os.path.normpath(os.path.join(top, above)):
            yield path


def _ignored(folder: Path) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    path = folder / IGNORE_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return GitIgnoreSpec.from_lines([*NEVER, *lines])


def _walked(folder: Path, ignored: "GitIgnoreSpec") -> Iterator[str]:
    """Yield the paths of all files that are not ignored, no more than show that there are too many."""
    count = 0
    for where, folders, names in os.walk(folder):
        below = os.path.relpath(where, folder)
        prefix = "" if below == "." else f"{below}/"
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = [name for name in folders if name not in links and not ignored.match_file(f"{prefix}{name}/")]
        for name in (*names, *links):
            if not ignored.match_file(prefix + name):
                count += 1
                yield prefix + name
        if count > 2 * FILES_MAX:
            return


def _sizes(folder: Path, paths: Iterable[str]) -> dict[str, int]:
    """Return the size of each file and link; what is neither, or is gone, is left out."""
    sizes = {}
    for path in sorted(set(paths)):
        try:
            status = os.lstat(folder / path)
        except FileNotFoundError:  # deleted, and git still tracks it
            continue
        if stat.S_ISREG(status.st_mode):
            sizes[path] = status.st_size
        elif stat.S_ISLNK(status.st_mode):
            sizes[path] = 0
    return sizes


def _described(folder: Path, path: str) -> TreeFile:
    full = folder / path
    if full.is_symlink():
        return TreeFile(path=path, target=os.readlink(full))
    with open(full, "rb") as file:
        status, chunks, size = os.fstat(file.fileno()), [], 0
        while chunk := file.read(CHUNK_BYTES):
            chunks.append(digest_of(chunk))
            size += len(chunk)
    return TreeFile(path=path, size_bytes=size, chunks=tuple(chunks), is_executable=bool(status.st_mode & 0o100))


def _read(path: Path, index: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(index * CHUNK_BYTES)
        return file.read(CHUNK_BYTES)
