"""What jobs leave on the disk after their end: how much it is, and how it is deleted.

A job owns what it has left, and may have made it hard to delete: links are not followed, and permissions are set again.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.folder import JOB_ID, jobs_logs_dir
from gavel.backends.job_folder import DEPTH_MAX, total_bytes
from gavel.backends.nodes.remote_outputs import RemoteOutputs, outputs_url
from gavel.backends.nodes.transfers import RemoteCheckpoints
from gavel.backends.several.homes import gangs_dirs
from gavel.config import Settings
from gavel.types import JobId

EndedBefore = Callable[[JobId, float], bool]
COPY_KEPT_S = 3600.0  # at least: a copy of a checkpoint is made before the job that begins with it is submitted


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a backend keeps checkpoints, a folder or the URL of one, and output folders.

    `is_shared`: other services may have jobs there.
    """

    checkpoints: Path | None
    url: str
    outputs: Path | None
    is_shared: bool


class Leftovers:
    """The files of jobs where the settings say: checkpoints, outputs, work, logs. Those of gangs are the backend's."""

    def __init__(self, settings: Settings) -> None:
        state_dir = settings.state_dir.resolve()
        self._settings = settings
        own = state_dir / "checkpoints"
        self._places = {
            _Place(each.checkpoints_dir, each.shared_checkpoints, each.outputs_dir, each.checkpoints_dir != own): None
            for each in settings.by_region.values()
        }
        self._logs = jobs_logs_dir(state_dir)
        named = [folder for place in self._places for folder in (place.checkpoints, place.outputs)]
        self._folders = [*dict.fromkeys(folder for folder in named if folder is not None), state_dir / "work"]

    def bytes_by_job(self) -> dict[JobId, int]:
        """Return the size of what each job has on this disk; what is at a URL is not counted."""
        sizes: dict[JobId, int] = {}
        for folder in self._folders:
            for path in _of_jobs(folder):
                sizes[path.name] = sizes.get(path.name, 0) + total_bytes(str(path))
        for path in _files(self._logs):
            job_id = path.name.partition(".")[0]
            with suppress(OSError):
                sizes[job_id] = sizes.get(job_id, 0) + path.lstat().st_size
        return sizes

    def delete(self, job_id: JobId, origins: Collection[str] = ()) -> int:
        """Delete all that the job has left, and return its size in bytes, as far as it is on this disk.

        Copies of its checkpoints in `origins` stay: other jobs begin with them. Raises what the storage raises.
        """
        logs = [path for path in _files(self._logs) if path.name.partition(".")[0] == job_id]
        folders = [folder / job_id for folder in self._folders]
        freed = sum(total_bytes(str(folder)) for folder in folders) + sum(path.lstat().st_size for path in logs)
        for path in (*folders, *logs, *self._copies(job_id, origins, before_s=float("inf"))):
            delete(path)
        for place in self._places:
            if place.checkpoints is None:
                RemoteCheckpoints(place.url).remove(job_id)
                RemoteOutputs(outputs_url(place.url)).remove_job(job_id)
        return freed

    def clear(self, ended_before: EndedBefore, *, is_known: Callable[[JobId], bool], origins: Collection[str]) -> None:
        """Delete what ended jobs have left, each kind after its time.

        `ended_before(job_id, instant)`: whether the job ended before it; True for one that is not stored any more.
        """
        kept_s = self._settings.keep_checkpoints_s
        for place in self._places:
            if place.is_shared:
                clear_folders(place.checkpoints, lambda job, at_s: ended_before(job, at_s) and is_known(job), kept_s)
            else:
                clear_folders(place.checkpoints, ended_before, kept_s)
        for path in self._copies("*", origins, before_s=time.time() - max(COPY_KEPT_S, kept_s)):
            delete(path)
        self._clear_logs(ended_before, self._settings.keep_logs_s)

    def ended_gangs(self, ended_before: EndedBefore) -> Iterator[JobId]:
        """Yield the ended jobs of which no gang is left, but files that refuse their older gangs."""
        of_job: dict[JobId, list[Path]] = {}
        for folder in gangs_dirs(self._settings):
            for path in _of_jobs(folder):
                of_job.setdefault(path.name, []).append(path)
        for job_id, paths in of_job.items():
            has_gang = any(each.is_dir() for path in paths for each in path.iterdir())
            if not has_gang and ended_before(job_id, time.time()):
                yield job_id

    def _clear_logs(self, ended_before: EndedBefore, kept_s: float) -> None:
        before_s = time.time() - kept_s
        for path in _files(self._logs):
            with suppress(OSError):
                if path.lstat().st_mtime < before_s and ended_before(path.name.partition(".")[0], before_s):
                    path.unlink()

    def _copies(self, job: str, origins: Collection[str], *, before_s: float) -> list[Path]:
        """Return the copies of checkpoints of a job (`*`: any) that were made before then and are not in `origins`."""
        roots = [place.checkpoints / ".copies" for place in self._places if place.checkpoints is not None]
        paths = [path for root in roots for folder in root.glob(job) for path in _entries(folder)]
        return [
            path
            for path in paths
            if f"{path.parent.name}/{path.name}" not in origins and path.lstat().st_mtime < before_s
        ]


def clear_folders(folder: Path | None, ended_before: EndedBefore, kept_s: float) -> None:
    """Delete the folders of jobs for which `ended_before(job_id, instant)` holds; the instant is `kept_s` ago."""
    before_s = time.time() - kept_s
    for path in _of_jobs(folder) if folder is not None else ():
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < before_s and ended_before(path.name, before_s):
                delete(path)


def delete(path: Path) -> None:
    """Delete a file or a folder with all that is in it, whatever its permissions; what cannot go now stays."""
    if not stat.S_ISDIR(_mode(path)):
        with suppress(OSError):
            path.unlink()
        return
    for _ in range(DEPTH_MAX):  # each turn opens folders one level below those that could be read before
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        for folder, _, _ in os.walk(path, onerror=_allow):
            _allow_folder(folder)


def _allow(problem: OSError) -> None:
    if problem.filename and stat.S_ISDIR(_mode(Path(problem.filename))):
        _allow_folder(problem.filename)


def _allow_folder(path: str) -> None:
    with suppress(OSError):
        os.chmod(path, 0o700)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _of_jobs(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if JOB_ID.fullmatch(path.name)]


def _files(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if not path.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
