"""The output files of all jobs below an fsspec URL, in a folder for each job."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple, cast

from gavel.backends.input_reading import TAGS
from gavel.types import JobId

CHUNK_BYTES = 1 << 20
FOLDER = "_outputs"
INSTANTS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""What drivers call the time of the last change."""


def outputs_url(checkpoints: str) -> str:
    """Return where output files are if checkpoints are at this URL."""
    return f"{checkpoints.rstrip('/')}/{FOLDER}"


class RemoteFile(NamedTuple):
    """A stored file: its size, when it was written (0: unknown), and what changes with its content ("": unknown)."""

    size_bytes: int
    modified_at_s: float
    tag: str


class RemoteOutputs:
    """The output files of all jobs. Every method may block for long and raise what fsspec raises."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._files, self._root = url_to_fs(url)

    def files(self, job_id: JobId) -> dict[str, RemoteFile]:
        """Return the stored files of a job by their paths below its folder, sorted."""
        folder = f"{self._root}/{job_id}"
        self._files.invalidate_cache()
        listed: dict[str, dict[str, Any]] = self._files.find(folder, detail=True) if self._files.exists(folder) else {}
        named = {path[len(folder) :].lstrip("/"): status for path, status in sorted(listed.items())}
        return {path: _described(status) for path, status in named.items() if is_inside(path)}

    def put(self, job_id: JobId, path: str, content: Iterator[bytes]) -> None:
        """Store a file as a whole."""
        stored = f"{self._root}/{job_id}/{path}"
        self._files.makedirs(stored.rpartition("/")[0], exist_ok=True)
        with self._files.open(stored, "wb") as file:
            for chunk in content:
                file.write(chunk)

    def open(self, job_id: JobId, path: str) -> BinaryIO:
        """Return a stored file, to be read and closed. Raises FileNotFoundError."""
        return cast(BinaryIO, self._files.open(f"{self._root}/{job_id}/{path}", "rb"))

    def remove(self, job_id: JobId, path: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{job_id}/{path}")

    def jobs(self) -> list[JobId]:
        """Return the jobs that have stored something."""
        self._files.invalidate_cache()
        stored = self._files.ls(self._root, detail=False) if self._files.exists(self._root) else ()
        return [path.rstrip("/").rpartition("/")[2] for path in stored]

    def remove_job(self, job_id: JobId) -> None:
        """Delete everything of a job."""
        self._files.rm(f"{self._root}/{job_id}", recursive=True)


def is_inside(path: str) -> bool:
    """Return True for a path that leads to a file below the folder that it is relative to."""
    return not {"", ".", ".."} & {*path.split("/")} and "\0" not in path


def _described(status: dict[str, Any]) -> RemoteFile:
    tag = next((str(status[name]) for name in TAGS if status.get(name)), "")
    written = next((status[name] for name in INSTANTS if status.get(name)), 0.0)
    return RemoteFile(int(status.get("size") or 0), _instant_s(written), tag)


def _instant_s(written: object) -> float:
    with suppress(ValueError):
        if isinstance(written, str):
            written = datetime.fromisoformat(written)
        if isinstance(written, datetime):
            return written.timestamp()
    return float(written) if isinstance(written, int | float) else 0.0
