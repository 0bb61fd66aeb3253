"""The checkpoints of jobs, as the service shows them and hands them out: each is a folder that a job has written."""

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gavel.backends.checkpoint_copies import copy_checkpoint
from gavel.backends.checkpoint_retention import CHECKPOINT
from gavel.backends.folder import JOB_ID
from gavel.backends.job_folder import ENTRIES_MAX, entries, open_file, total_bytes
from gavel.errors import InvalidRequest, NotFound
from gavel.types import JobId

CHUNK_BYTES = 1 << 18
END = bytes(2 * tarfile.BLOCKSIZE)  # of a tar archive


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFolder:
    """A checkpoint: written by the gang `generation` after `step` steps."""

    name: str
    generation: int
    step: int
    size_bytes: int
    written_at_s: float


class Checkpoints:
    """The checkpoints below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def listing(self, job_id: JobId) -> tuple[CheckpointFolder, ...]:
        """Return the job's checkpoints that are on the disk, the newest first."""
        if not JOB_ID.fullmatch(job_id) or not (self._folder / job_id).is_dir():
            return ()
        with os.scandir(self._folder / job_id) as scan:
            named = [(CHECKPOINT.fullmatch(entry.name), entry) for entry in scan if entry.is_dir(follow_symlinks=False)]
            folders = [
                CheckpointFolder(
                    name=entry.name,
                    generation=int(match[1]),
                    step=int(match[2]),
                    size_bytes=total_bytes(entry.path),
                    written_at_s=entry.stat(follow_symlinks=False).st_mtime,
                )
                for match, entry in named
                if match
            ]
        return tuple(sorted(folders, key=lambda each: (each.generation, each.step), reverse=True))

    def copy(self, job_id: JobId, name: str) -> str:
        """Keep a checkpoint for a job that begins with it; return its origin. Raises InvalidRequest, OSError."""
        return copy_checkpoint(self._folder, job_id, name)

    def tar(self, job_id: JobId, name: str) -> Iterator[bytes]:
        """Return the bytes of a tar archive of the checkpoint's regular files. Raises NotFound, InvalidRequest.

        While it is read it raises OSError if a file goes or shrinks: an archive that is cut off is never taken for
        whole.
        """
        if all(each.name != name for each in self.listing(job_id)):
            raise no_checkpoint(job_id, name)
        root = str(self._folder / job_id / name)
        inside = list(entries(root))
        if len(inside) >= ENTRIES_MAX:
            raise too_many_files(name)
        return _archive(root, name, sorted(path for path, status in inside if stat.S_ISREG(status.st_mode)))


def no_checkpoint(job_id: JobId, name: str) -> NotFound:
    """Return the error for a checkpoint that is not there."""
    return NotFound(f"job {job_id} has no checkpoint {name!r}; `gavel job checkpoints {job_id}` lists them")


def too_many_files(name: str) -> InvalidRequest:
    """Return the error for a checkpoint that is not archived."""
    return InvalidRequest("checkpoint", f"{name} has {ENTRIES_MAX:,} files or more; copy its folder instead")


def _archive(root: str, name: str, paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        file = open_file(root, path)
        try:
            status = os.fstat(file)
            yield from member(partial(os.read, file), f"{name}/{path}", status.st_size, status.st_mtime)
        finally:
            os.close(file)
    yield END


def member(read: Callable[[int], bytes], path: str, size_bytes: int, written_at_s: float) -> Iterator[bytes]:
    """Yield one file of a tar archive; `read` returns its next bytes, at most so many. Raises OSError if it shrank."""
    header = tarfile.TarInfo(path)
    header.size, header.mtime = size_bytes, int(written_at_s)
    yield header.tobuf(tarfile.PAX_FORMAT)
    left = header.size
    while left:
        chunk = read(min(CHUNK_BYTES, left))
        if not chunk:
            raise OSError(f"{path} has become shorter")
        left -= len(chunk)
        yield chunk
    yield bytes(-header.size % tarfile.BLOCKSIZE)
