"""Checkpoints at an fsspec URL (`s3://bucket/gavel`, `gs://..`): nodes store and fetch them in the background.

A gang writes its checkpoints to its node's disk; the service sees one only once it is stored, so whatever is accepted
can be restored on any node.
"""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from gavel.backends.checkpoint_retention import keep_checkpoint, older_ones
from gavel.backends.job_folder import DEPTH_MAX, ENTRIES_MAX, content, entries, open_file
from gavel.backends.unix_users import give
from gavel.types import JobId

TRIES = 5
CHECKPOINT_ENTRIES_MAX = 1_000_000
PAUSE_S = 1.0  # seconds after the first failure; doubles each time


def is_url(checkpoints: str) -> bool:
    """Return True for an fsspec URL, False for a folder that all nodes see."""
    return "://" in checkpoints


class RemoteCheckpoints:
    """The checkpoints of all jobs below one URL. Every method may block for long and raise what fsspec raises."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._files, self._root = url_to_fs(url)

    def put(self, job_id: JobId, path: Path) -> None:
        """Store the folder under its own name, without following a link: this is another user than the job's.

        Raises PermissionError for what is no file.
        """
        for name, status in entries(str(path), CHECKPOINT_ENTRIES_MAX):
            if not stat.S_ISREG(status.st_mode):
                raise PermissionError(f"{name} of checkpoint {path.name} is no file; links are not stored")
            self._put_file(f"{self._root}/{job_id}/{path.name}/{name}", open_file(str(path), name))

    def _put_file(self, stored: str, descriptor: int) -> None:
        self._files.makedirs(stored.rpartition("/")[0], exist_ok=True)
        with open(descriptor, "rb") as source, self._files.open(stored, "wb") as file:
            for chunk in content(source.fileno(), os.fstat(source.fileno()).st_size):
                file.write(chunk)

    def write(self, job_id: JobId, name: str, path: str, chunks: Iterable[bytes]) -> str:
        """Store a file of a checkpoint; return the SHA-256 of what was written."""
        stored, digest = f"{self._root}/{job_id}/{name}/{path}", hashlib.sha256()
        self._files.makedirs(stored.rpartition("/")[0], exist_ok=True)
        with self._files.open(stored, "wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    def delete(self, job_id: JobId, name: str, path: str) -> None:
        """Delete a file of a checkpoint."""
        self._files.rm(f"{self._root}/{job_id}/{name}/{path}")

    def fetch(self, job_id: JobId, path: Path) -> None:
        """Fetch the checkpoint; the local folder appears only once it is complete, and is that of the job's user.

        It is fetched beside the job's folder, in which the job could put a link in its way.
        """
        partial = path.parent.with_name(f".{path.parent.name}.{path.name}.fetching")
        shutil.rmtree(partial, ignore_errors=True)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.get(f"{self._root}/{job_id}/{path.name}/", f"{partial}/", recursive=True)
        if os.geteuid() == 0:
            give(str(partial), path.parent.stat().st_uid)
        partial.rename(path)

    def keep(self, job_id: JobId, checkpoint: str) -> None:
        """Delete older checkpoints of the job but the newest of them."""
        for name in older_ones(self.names(job_id), checkpoint)[:-1]:
            self._files.rm(f"{self._root}/{job_id}/{name}", recursive=True)

    def remove(self, job_id: JobId) -> None:
        """Delete all checkpoints of the job."""
        if self._files.exists(f"{self._root}/{job_id}"):
            self._files.rm(f"{self._root}/{job_id}", recursive=True)

    def names(self, job_id: JobId) -> list[str]:
        """Return the names of what is stored for the job."""
        folder = f"{self._root}/{job_id}"
        self._files.invalidate_cache()
        stored = self._files.ls(folder, detail=False) if self._files.exists(folder) else ()
        return [path.rstrip("/").rpartition("/")[2] for path in stored]

    def files(self, job_id: JobId, name: str) -> dict[str, int]:
        """Return the sizes of a checkpoint's files in bytes by their paths below it, at most ENTRIES_MAX of them."""
        root = f"{self._root}/{job_id}/{name}"
        sizes: dict[str, int] = {}
        for folder, _, files in self._files.walk(root, maxdepth=DEPTH_MAX, detail=True):
            inside = folder.rstrip("/")[len(root) :].lstrip("/")
            sizes |= {f"{inside}/{each}".lstrip("/"): int(info["size"] or 0) for each, info in files.items()}
            if len(sizes) >= ENTRIES_MAX:
                break
        return dict(sorted(sizes.items())[:ENTRIES_MAX])

    def written_at_s(self, job_id: JobId, name: str, path: str) -> float:
        """Return when a file was stored, in seconds since the epoch; 0 where the storage says nothing."""
        try:
            return float(self._files.modified(f"{self._root}/{job_id}/{name}/{path}").timestamp())
        except NotImplementedError:
            return 0.0

    def open(self, job_id: JobId, name: str, path: str) -> BinaryIO:
        """Return a file of a checkpoint, to be read and closed."""
        return cast(BinaryIO, self._files.open(f"{self._root}/{job_id}/{name}/{path}", "rb"))


class Transfers:
    """Copies in background threads, each identified by a name."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="gavel-checkpoints")
        self._futures: dict[object, Future[None]] = {}

    def done(self, name: object, copy: Callable[[], None]) -> bool:
        """Return True once `copy`, started with the first call of this name, has ended; raise its last error."""
        future = self._futures.get(name)
        if future is None:
            self._futures[name] = self._threads.submit(_try, copy)
            return False
        if future.done():
            future.result()
        return future.done()

    def forget(self, holds: Callable[[object], bool]) -> None:
        """Forget the ended copies whose names match: nobody will ask for them any more."""
        for name in [name for name, future in self._futures.items() if future.done() and holds(name)]:
            del self._futures[name]

    def close(self) -> None:
        """Start no other copy."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Retention:
    """Deletes the checkpoints that are no longer needed, of a folder that all nodes share or at a URL."""

    def __init__(self, checkpoints: str) -> None:
        self._checkpoints = checkpoints
        self._transfers = Transfers(threads=1)

    def keep(self, job_id: JobId, checkpoint: str) -> None:
        """Delete older checkpoints of the job: at a URL in the background, again with the next one if that fails.

        Raises InvalidRequest.
        """
        if not is_url(self._checkpoints):
            keep_checkpoint(Path(self._checkpoints) / job_id, checkpoint)
            return
        with suppress(Exception):  # errors of an earlier attempt for the same checkpoint
            self._transfers.done(
                (job_id, checkpoint), lambda: RemoteCheckpoints(self._checkpoints).keep(job_id, checkpoint)
            )

    def forget(self, job_id: JobId) -> None:
        """Forget the job's transfers: no gang of it is left."""
        self._transfers.forget(lambda name: isinstance(name, tuple) and name[0] == job_id)

    def close(self) -> None:
        """Start nothing more."""
        self._transfers.close()


def store(url: str, job_id: JobId, path: Path) -> None:
    """Store a checkpoint, then drop the older ones of the job from this node's disk."""
    RemoteCheckpoints(url).put(job_id, path)
    keep_checkpoint(path.parent, path.name)


def _try(copy: Callable[[], None]) -> None:
    """Copy, with pauses between attempts, since storage fails at times. Raises the error of the last attempt."""
    for tried in range(1, TRIES):
        try:
            copy()
        except Exception:  # of whichever storage this is
            time.sleep(PAUSE_S * 2 ** (tried - 1))
        else:
            return
    copy()
