"""Where the checkpoints of a region are, a folder or an fsspec URL, and how one is copied to another region's.

A copy is checked file by file: what is read there again has to have the digest of what was read here. One in a folder
appears only once it is whole; one at a URL has a mark beside it until then.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from gavel.backends.checkpoint_retention import CHECKPOINT
from gavel.backends.durable import sync_folder
from gavel.backends.job_folder import CHUNK_BYTES, entries, open_file
from gavel.backends.nodes.transfers import CHECKPOINT_ENTRIES_MAX, RemoteCheckpoints, is_url
from gavel.backends.unix_users import give

COMING = ".coming"  # the folder of the marks of copies at a URL


class Storage(Protocol):
    """The checkpoints of all jobs in one place. Every method may block for long, and raise what the storage raises."""

    def names(self, job_id: str) -> list[str]:
        """Return the names of the job's checkpoints."""

    def is_whole(self, job_id: str, name: str) -> bool:
        """Return whether a checkpoint is here, and is not a part of a copy."""

    def is_empty(self) -> bool:
        """Return whether nothing of any job is here, as where a file system is not mounted."""

    def has_folder(self, job_id: str) -> bool:
        """Return whether the job has had checkpoints here, even if none is left."""

    def files(self, job_id: str, name: str) -> dict[str, int]:
        """Return the sizes of a checkpoint's files in bytes by their paths."""

    def open(self, job_id: str, name: str, path: str) -> BinaryIO:
        """Return a file of a checkpoint, to be read and closed."""

    def put(self, job_id: str, name: str, source: "Storage") -> None:
        """Copy a checkpoint from another storage. Raises OSError if the copy is not what was read."""


def storage_at(place: str) -> Storage:
    """Return the storage at a folder or URL."""
    return UrlStorage(place) if is_url(place) else FolderStorage(Path(place))


class FolderStorage:
    """Checkpoints below a folder, which jobs write: no link is followed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, job_id: str) -> list[str]:
        """Return the names of the job's checkpoints. Raises OSError if the place itself is not there."""
        folder = self._root / job_id
        if not folder.is_dir():
            os.listdir(self._root)
            return []
        return [each.name for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]

    def is_whole(self, job_id: str, name: str) -> bool:
        """Return whether the checkpoint is here."""
        return name in self.names(job_id)

    def is_empty(self) -> bool:
        """Return whether no job has a folder here."""
        return all(each.startswith((".", "_")) for each in os.listdir(self._root))

    def has_folder(self, job_id: str) -> bool:
        """Return whether the job has a folder here."""
        return (self._root / job_id).is_dir()

    def files(self, job_id: str, name: str) -> dict[str, int]:
        """Return the sizes of a checkpoint's files by their paths."""
        inside = entries(str(self._root / job_id / name), CHECKPOINT_ENTRIES_MAX)
        return {path: status.st_size for path, status in inside if stat.S_ISREG(status.st_mode)}

    def open(self, job_id: str, name: str, path: str) -> BinaryIO:
        """Return a file of a checkpoint."""
        return os.fdopen(open_file(str(self._root / job_id / name), path), "rb")

    def put(self, job_id: str, name: str, source: Storage) -> None:
        """Copy a checkpoint from another storage; it appears once it is whole."""
        target = self._root / job_id / name
        coming = self._root / f".{job_id}.{name}.coming"
        shutil.rmtree(coming, ignore_errors=True)
        coming.mkdir(mode=0o700, parents=True)
        for path in source.files(job_id, name):
            with source.open(job_id, name, path) as file:
                _write_checked(coming / path, file)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            give(str(coming), target.parent.stat().st_uid)
        shutil.rmtree(target, ignore_errors=True)  # a part of it, which is none of the job's any more
        coming.rename(target)
        sync_folder(target.parent)


class UrlStorage:
    """Checkpoints below an fsspec URL."""

    def __init__(self, url: str) -> None:
        self._remote = RemoteCheckpoints(url)

    def names(self, job_id: str) -> list[str]:
        """Return the names of the job's checkpoints."""
        return [name for name in self._remote.names(job_id) if CHECKPOINT.fullmatch(name)]

    def is_whole(self, job_id: str, name: str) -> bool:
        """Return whether the checkpoint is here, without the mark of a copy."""
        return name in self.names(job_id) and name not in self._remote.files(COMING, job_id)

    def is_empty(self) -> bool:
        """Return False: a storage that is not there does not answer."""
        return False

    def has_folder(self, job_id: str) -> bool:
        """Return False: a storage has no empty folders."""
        return False

    def files(self, job_id: str, name: str) -> dict[str, int]:
        """Return the sizes of a checkpoint's files by their paths."""
        return self._remote.files(job_id, name)

    def open(self, job_id: str, name: str, path: str) -> BinaryIO:
        """Return a file of a checkpoint."""
        return self._remote.open(job_id, name, path)

    def put(self, job_id: str, name: str, source: Storage) -> None:
        """Copy a checkpoint from another storage; it has its mark until it is whole."""
        self._remote.write(COMING, job_id, name, [b"a copy to here has begun"])
        for path in source.files(job_id, name):
            with source.open(job_id, name, path) as file:
                written = self._remote.write(job_id, name, path, chunks_of(file))
            with self.open(job_id, name, path) as copy:
                check(path, written, digest_of(copy))
        self._remote.delete(COMING, job_id, name)


class Digested:
    """The chunks of a file that is read, and their digest and size so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.size_bytes = file, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rest of the file."""
        for chunk in chunks_of(self._file):
            self._digest.update(chunk)
            self.size_bytes += len(chunk)
            yield chunk

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was read."""
        return self._digest.hexdigest()


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a file."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def digest_of(file: BinaryIO) -> str:
    """Return the SHA-256 of the rest of a file."""
    read = Digested(file)
    for _ in read:
        pass
    return read.hexdigest()


def check(path: str, read: str, copied: str) -> None:
    """Raise OSError unless both digests are the same."""
    if read != copied:
        raise OSError(f"the copy of {path} is not what was read")


def _write_checked(path: Path, source: BinaryIO) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    read = Digested(source)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target:
        for chunk in read:
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    with path.open("rb") as copy:
        check(path.name, read.hexdigest(), digest_of(copy))
