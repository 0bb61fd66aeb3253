"""The output folders of jobs, as the service shows them, hands them out and deletes them."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.folder import JOB_ID
from gavel.backends.job_folder import ENTRIES_MAX, entries, open_file
from gavel.backends.leftovers import clear_folders
from gavel.errors import NotFound
from gavel.types import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file below a job's output folder; `path` is relative, with slashes."""

    path: str
    size_bytes: int
    modified_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of an output folder, sorted by path, and how many entries were left out.

    Left out are links, pipes and the like, and names that are no UTF-8. `is_cut`: there is more than was looked at.
    """

    files: tuple[JobFile, ...]
    left_out: int
    is_cut: bool


class Outputs:
    """The output folders below a folder; None: jobs have none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def listing(self, job_id: JobId) -> Listing:
        """Return the files of a job; none if it has written nothing."""
        present = list(entries(self._path(job_id)))
        files = [_file(path, status) for path, status in present if _is_shown(path, status)]
        return Listing(
            files=tuple(sorted(files, key=lambda file: file.path)),
            left_out=len(present) - len(files),
            is_cut=len(present) >= ENTRIES_MAX,
        )

    def open(self, job_id: JobId, path: str) -> int:
        """Return a descriptor of a file. Raises NotFound, also for links and for paths that lead elsewhere."""
        try:
            return open_file(self._path(job_id), path)
        except (OSError, ValueError):
            raise no_file(job_id, path) from None

    def clear(self, ended_before: Callable[[JobId, float], bool], kept_s: float) -> None:
        """Delete the folders of jobs for which `ended_before(job_id, instant)` holds; the instant is `kept_s` ago."""
        clear_folders(self._folder, ended_before, kept_s)

    def _path(self, job_id: JobId) -> str:
        if not JOB_ID.fullmatch(job_id):
            raise NotFound(f"no job {job_id!r}")
        return str(self._folder / job_id) if self._folder is not None else ""


def no_file(job_id: JobId, path: str) -> NotFound:
    """Return the error for a file that is not there, or not to be had."""
    return NotFound(f"job {job_id} has no output file {path!r}; `gavel job files {job_id}` lists them")


def _is_shown(path: str, status: os.stat_result) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return stat.S_ISREG(status.st_mode)


def _file(path: str, status: os.stat_result) -> JobFile:
    return JobFile(path=path, size_bytes=status.st_size, modified_at_s=status.st_mtime)
