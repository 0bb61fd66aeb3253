"""Writes a job's own copy of its code. Standard library only: a part of the supervisor."""

import errno
import os
import shutil

from gavel.backends.unix_users import give
from gavel.code_tree import CHUNK_BYTES, TreeFile, read_tree

UNSUPPORTED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def chunk_path(store: str, chunk: str) -> str:
    """Return where a chunk is stored."""
    return os.path.join(store, "chunks", chunk[:2], chunk)


def tree_path(store: str, digest: str) -> str:
    """Return where the tree of a code version is stored."""
    return os.path.join(store, "trees", f"{digest}.json")


def copy_code(store: str, digest: str, target: str, staging: str, uid: int = 0) -> None:
    """Write the code version into `target`, whole or not at all; what is there already is kept. Raises OSError.

    It is made in the folder `staging`, on the same disk, which no job writes; then it belongs to `uid`.

    The kernel copies: a file system that can share blocks until one side is changed does so. Hard links would not do,
    because a job that changes a file in place would change it for every other job, and for the store.
    """
    if os.path.isdir(target):
        return
    with open(tree_path(store, digest), "rb") as file:
        files = read_tree(file.read())
    temporary = os.path.join(staging, "code.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary, mode=0o700)
    for each in files:
        _write(store, each, os.path.join(temporary, each.path))
    if os.geteuid() == 0:
        give(temporary, uid)
    os.rename(temporary, target)


def _write(store: str, wanted: TreeFile, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if wanted.target:
        os.symlink(wanted.target, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(path, flags, 0o755 if wanted.is_executable else 0o644)
    try:
        for chunk in wanted.chunks:
            _append(chunk_path(store, chunk), file)
        if os.fstat(file).st_size != wanted.size_bytes:
            raise OSError(errno.EIO, "stored code is cut short", path)
    finally:
        os.close(file)


def _append(source: str, file: int) -> None:
    chunk = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.copy_file_range(chunk, file, CHUNK_BYTES):
            pass
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
        while os.sendfile(file, chunk, None, CHUNK_BYTES):
            pass
    finally:
        os.close(chunk)
