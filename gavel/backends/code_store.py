"""The code versions that jobs run, stored once: trees of files, and the chunks that the files consist of.

Every piece is named by its digest and written whole or not at all, so several processes may write at once, and an
upload that was cut off goes on where it was.
"""

import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from gavel.backends.code_copy import chunk_path, tree_path
from gavel.backends.durable import write_durable
from gavel.code_tree import (
    CHUNK_BYTES,
    DIFF_FILE,
    TreeFile,
    chunk_sizes,
    digest_of,
    problem_of,
    read_tree,
    too_large,
    tree_text,
    unpacked,
)
from gavel.errors import InvalidRequest, NotFound
from gavel.types import JobId

CLEAR_EVERY_S = 3600.0
WRITERS = 8  # they wait for the disk at the same time, which then writes for all of them at once


def code_dir(state_dir: Path) -> Path:
    """Return the folder of the store."""
    return state_dir / "code"


class CodeStore:
    """The store below `state_dir`. A version has at most `limit_bytes`; one that nobody used for `kept_s` may go.

    The versions of one user have at most `user_limit_bytes` together, each chunk counted once; None: no limit.
    """

    def __init__(
        self, state_dir: Path, *, limit_bytes: int, kept_s: float, user_limit_bytes: int | None = None
    ) -> None:
        self._folder = code_dir(state_dir)
        self._state_dir = state_dir
        self._user_limit_bytes = user_limit_bytes
        self.limit_bytes = limit_bytes
        self._kept_s = kept_s
        self._clear_at_s = 0.0

    def put(self, files: Sequence[TreeFile], user: str = "") -> tuple[str, tuple[str, ...]]:
        """Store the tree for a user; return its digest and the chunks that are missing.

        Raises InvalidRequest, also where the user's versions would be too large together; OSError.
        """
        problem = problem_of(files) or too_large({each.path: each.size_bytes for each in files}, self.limit_bytes)
        if problem:
            raise InvalidRequest("files", problem)
        text = tree_text(files)
        digest = digest_of(text)
        if user:
            self._count(user, digest, files)
        self._write(tree_path(str(self._folder), digest), text)
        return digest, tuple(self._missing(files))

    def _count(self, user: str, digest: str, files: Sequence[TreeFile]) -> None:
        """Note that a version is the user's. Raises InvalidRequest if all of theirs are too large together."""
        folder = self._folder / "users" / user
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sizes = chunk_sizes(files)
        for version in list(folder.iterdir()):
            try:
                sizes |= chunk_sizes(self.files(version.name))
            except NotFound:  # it was deleted meanwhile
                version.unlink(missing_ok=True)
        limit, total = self._user_limit_bytes, sum(sizes.values())
        if limit is not None and total > limit and not (folder / digest).exists():
            raise InvalidRequest("files", _too_much(user, total, limit, self._kept_s))
        (folder / digest).touch(mode=0o600)

    def put_chunks(self, digest: str, body: bytes) -> tuple[str, ...]:
        """Store the chunks of a body that belong to the version; return those that are missing still.

        Raises NotFound for an unknown version, InvalidRequest, OSError.
        """
        files = self.files(digest)
        wanted = {chunk for each in files for chunk in each.chunks}
        try:
            chunks = {digest_of(chunk): chunk for chunk in unpacked(body)}
        except ValueError as problem:
            raise InvalidRequest("body", str(problem)) from problem
        if others := chunks.keys() - wanted:
            raise InvalidRequest("body", f"chunk {min(others)} is no part of it; a file changed while it was read?")
        paths = [chunk_path(str(self._folder), name) for name in chunks]
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(self._write, paths, chunks.values()))
        return tuple(self._missing(files))

    def put_diff(self, text: bytes, user: str) -> str:
        """Store a diff for a user, as a version of one file; return its digest. Raises InvalidRequest, OSError."""
        chunks = [text[start : start + CHUNK_BYTES] for start in range(0, len(text), CHUNK_BYTES)]
        names = tuple(map(digest_of, chunks))
        digest, _ = self.put([TreeFile(path=DIFF_FILE, size_bytes=len(text), chunks=names)], user)
        for name, chunk in zip(names, chunks, strict=True):
            self._write(chunk_path(str(self._folder), name), chunk)
        return digest

    def diff(self, digest: str) -> bytes:
        """Return the text of a stored diff. Raises NotFound, also for a version that is none."""
        files = self.files(digest)
        if [each.path for each in files] != [DIFF_FILE]:
            raise NotFound(f"code version {digest} is no diff")
        try:
            return b"".join(Path(chunk_path(str(self._folder), name)).read_bytes() for name in files[0].chunks)
        except FileNotFoundError:
            raise NotFound(f"parts of the diff {digest} are gone") from None

    def files(self, digest: str) -> tuple[TreeFile, ...]:
        """Return the files of a version. Raises NotFound."""
        try:
            return read_tree(Path(tree_path(str(self._folder), digest)).read_bytes())
        except FileNotFoundError:
            raise NotFound(f"no code version {digest}") from None

    def missing(self, digest: str) -> dict[str, int]:
        """Return the chunks of a version that are not stored, with their sizes in bytes, and mark it as used now.

        Raises NotFound, OSError.
        """
        files = self.files(digest)
        os.utime(tree_path(str(self._folder), digest))
        return self._missing(files)

    def use(self, digest: str, field: str = "code.digest") -> None:
        """Mark a version as used now. Raises InvalidRequest, which names the field, unless all of it is stored."""
        try:
            missing = self.missing(digest)
        except NotFound:
            raise InvalidRequest(field, f"no code version {digest}; store it first") from None
        if missing:
            raise InvalidRequest(field, f"{len(missing)} chunks of {digest} are missing; send them first")

    def is_clear_due(self) -> bool:
        """Return True once an hour: it is time to clear."""
        now_s = time.monotonic()
        if now_s < self._clear_at_s:
            return False
        self._clear_at_s = now_s + CLEAR_EVERY_S
        return True

    def use_diff(self, digest: str) -> None:
        """Mark a diff as used now. Raises InvalidRequest unless it is stored, and is one."""
        self.use(digest, "code.diff")
        if [each.path for each in self.files(digest)] != [DIFF_FILE]:
            raise InvalidRequest(
                "code.diff", f"{digest} is no diff; store one with POST /v1/code-diffs, or leave it out"
            )

    def clear(self, unfinished: Mapping[JobId, Collection[str]]) -> None:
        """Delete what nobody has used for `kept_s`: versions, their chunks, and the folders in which jobs worked.

        `unfinished`: the jobs that have not ended, with the digests of what each uses; all of that stays.
        """
        used = {digest for digests in unfinished.values() for digest in digests}
        before_s = time.time() - self._kept_s
        trees = list((self._folder / "trees").glob("*.json"))
        for path in trees:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before_s and path.stem not in used:
                    path.unlink()
        kept = {chunk for path in trees if path.exists() for each in self.files(path.stem) for chunk in each.chunks}
        for chunk in (self._folder / "chunks").glob("*/*"):
            with suppress(FileNotFoundError):
                if chunk.name not in kept and chunk.stat().st_mtime < before_s:
                    chunk.unlink()
        for work in (self._state_dir / "work").glob("*"):
            if work.name not in unfinished and self._was_used(work) < before_s:
                shutil.rmtree(work, ignore_errors=True)

    def _was_used(self, work: Path) -> float:
        """Return when a job that has ended last changed its folder or wrote to its log, in seconds since the epoch."""
        paths = (work, work / "code", self._state_dir / "logs" / f"{work.name}.log")
        return max((path.lstat().st_mtime for path in paths if path.exists()), default=0.0)

    def _missing(self, files: Sequence[TreeFile]) -> dict[str, int]:
        folder = str(self._folder)
        return {chunk: size for chunk, size in chunk_sizes(files).items() if not _has(chunk_path(folder, chunk), size)}

    def _write(self, name: str, content: bytes) -> None:
        if _has(name, len(content)):
            return
        write_durable(Path(name), content)


def _too_much(user: str, total: int, limit: int, kept_s: float) -> str:
    return (
        f"user {user} would have {total / 1e6:.1f} MB of code stored and may have {limit / 1e6:.1f} MB"
        f" (user_code_bytes). Name data sets and results in .gavelignore; what no unfinished job runs goes"
        f" {kept_s / 86_400:.0f} days after its last use"
    )


def _has(path: str, size: int) -> bool:
    """Return whether the piece is stored, and mark it as used now. One that lost power cut short counts as absent."""
    try:
        os.utime(path)
        return os.stat(path).st_size == size
    except FileNotFoundError:
        return False
