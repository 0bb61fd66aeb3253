"""Where the output files of a region are, a folder or an fsspec URL, and how one is copied to another region's.

A copy is checked like one of a checkpoint: what is read there again has to have the digest of what was read here.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from gavel.backends.nodes.remote_outputs import RemoteOutputs
from gavel.backends.nodes.stored_outputs import StoredOutputs
from gavel.backends.nodes.transfers import is_url
from gavel.backends.outputs import JobFile, Listing, Outputs
from gavel.backends.several.storages import Digested, check, digest_of
from gavel.types import JobId

COMING = ".gavel-coming"  # what a file is called until it is whole
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputPlace(Protocol):
    """The output files of all jobs in one place. Every method may block for long, and raise what the place raises."""

    def listing(self, job_id: JobId) -> Listing:
        """Return the files of a job."""

    def read(self, job_id: JobId, path: str) -> BinaryIO:
        """Return a file of a job, to be read and closed."""

    def put(self, job_id: JobId, file: JobFile, source: BinaryIO) -> None:
        """Copy a file of a job to the same path here. Raises OSError if the copy is not what was read."""


def output_place(place: str) -> OutputPlace:
    """Return the output files at a folder or URL."""
    return OutputsAtUrl(place) if is_url(place) else OutputsInFolder(Path(place))


class OutputsInFolder(Outputs):
    """Output files below a folder, where jobs have made links perhaps: none is followed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._root = root

    def read(self, job_id: JobId, path: str) -> BinaryIO:
        """Return a file of a job, to be read and closed. Raises NotFound."""
        return os.fdopen(self.open(job_id, path), "rb")

    def put(self, job_id: JobId, file: JobFile, source: BinaryIO) -> None:
        """Copy a file of a job to the same path here, with its time; it appears once it is whole. Raises OSError."""
        home = self._root / job_id
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        *folders, name = file.path.split("/")
        inside = os.open(home, FOLDER)
        try:
            owner = os.fstat(inside).st_uid
            for part in folders:
                inside = _inner(inside, part, owner)
            _write(inside, name, owner, file, source)
        finally:
            os.close(inside)


class OutputsAtUrl(StoredOutputs):
    """Output files below an fsspec URL."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._remote = RemoteOutputs(url)

    def read(self, job_id: JobId, path: str) -> BinaryIO:
        """Return a file of a job, to be read and closed. Raises FileNotFoundError, and what the storage raises."""
        return self._remote.open(job_id, path)

    def put(self, job_id: JobId, file: JobFile, source: BinaryIO) -> None:
        """Copy a file of a job to the same path here. Raises OSError, and what the storage raises."""
        read = Digested(source)
        self._remote.put(job_id, file.path, iter(read))
        with self._remote.open(job_id, file.path) as copy:
            _check(file, read, copy)


def _inner(outer: int, name: str, owner: int) -> int:
    """Return the folder of this name in an open one, which is closed; made if it is not there. Raises OSError."""
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=outer)
            os.chown(name, owner, owner, dir_fd=outer, follow_symlinks=False)
        return os.open(name, FOLDER, dir_fd=outer)
    finally:
        os.close(outer)


def _write(folder: int, name: str, owner: int, file: JobFile, source: BinaryIO) -> None:
    with suppress(FileNotFoundError):
        os.unlink(COMING, dir_fd=folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(COMING, flags, 0o600, dir_fd=folder), "w+b") as copy:
        _fill(copy, Digested(source), file)
        os.utime(copy.fileno(), (file.modified_at_s, file.modified_at_s))
        if os.geteuid() == 0:
            os.fchown(copy.fileno(), owner, owner)
    os.rename(COMING, name, src_dir_fd=folder, dst_dir_fd=folder)


def _fill(copy: BinaryIO, read: Digested, file: JobFile) -> None:
    for chunk in read:
        copy.write(chunk)
    copy.flush()
    os.fsync(copy.fileno())
    copy.seek(0)
    _check(file, read, copy)


def _check(file: JobFile, read: Digested, copy: BinaryIO) -> None:
    """Raise OSError unless a copy is what was read, and that is of the size that was listed."""
    check(file.path, read.hexdigest(), digest_of(copy))
    if read.size_bytes != file.size_bytes:
        raise OSError(f"{file.path} has another size than a moment before")
