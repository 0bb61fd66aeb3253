"""The output files of jobs at an fsspec URL, as the service shows them, hands them out and deletes them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from gavel.backends.folder import JOB_ID
from gavel.backends.job_folder import ENTRIES_MAX
from gavel.backends.nodes.remote_outputs import RemoteOutputs, is_inside, outputs_url
from gavel.backends.nodes.storage_errors import answering
from gavel.backends.outputs import JobFile, Listing, Outputs, no_file
from gavel.config import Settings
from gavel.errors import NotFound
from gavel.types import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An open file of the storage, to be read and closed."""

    file: BinaryIO
    size_bytes: int


class StoredOutputs:
    """The output files below a URL, with the calls of `Outputs`; all raise BackendUnavailable, too."""

    def __init__(self, url: str) -> None:
        self._url = url

    def listing(self, job_id: JobId) -> Listing:
        """Return the files of a job that are stored; none if it has written nothing. Raises NotFound."""
        if not JOB_ID.fullmatch(job_id):
            raise NotFound(f"no job {job_id!r}")
        with answering("storage of output files"):
            stored = RemoteOutputs(self._url).files(job_id)
        files = [
            JobFile(path=path, size_bytes=each.size_bytes, modified_at_s=each.modified_at_s)
            for path, each in stored.items()
        ]
        return Listing(files=tuple(files[:ENTRIES_MAX]), left_out=0, is_cut=len(files) > ENTRIES_MAX)

    def open(self, job_id: JobId, path: str) -> StoredFile:
        """Return a file. Raises NotFound, also for paths that lead elsewhere."""
        if not JOB_ID.fullmatch(job_id) or not is_inside(path):
            raise no_file(job_id, path)
        with answering("storage of output files"):
            remote = RemoteOutputs(self._url)
            try:
                file = remote.open(job_id, path)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise no_file(job_id, path) from None
            return StoredFile(file=file, size_bytes=file.seek(0, 2))

    def clear(self, ended_before: Callable[[JobId, float], bool], kept_s: float) -> None:
        """Delete the files of jobs for which `ended_before(job_id, instant)` holds; the instant is `kept_s` ago."""
        before_s = time.time() - kept_s
        with answering("storage of output files"):
            remote = RemoteOutputs(self._url)
            for job_id in remote.jobs():
                if JOB_ID.fullmatch(job_id) and ended_before(job_id, before_s):
                    remote.remove_job(job_id)


def outputs_of(settings: Settings) -> Outputs | StoredOutputs:
    """Return the output files of the service with these settings."""
    folder = settings.outputs_dir
    return StoredOutputs(outputs_place(settings)) if folder is None else Outputs(folder)


def outputs_place(settings: Settings) -> str:
    """Return the folder of all jobs' output folders, or its URL if checkpoints are at one."""
    return str(settings.outputs_dir or outputs_url(settings.shared_checkpoints))
