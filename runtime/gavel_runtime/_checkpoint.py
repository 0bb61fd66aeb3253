"""Checkpoints that are whole or absent: written beside their place, flushed to disk, then renamed into it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def begin_checkpoint(directory: Path, name: str) -> Path:
    """Return a new empty folder to fill: `.NAME.tmp` in `directory`.

    Unfinished checkpoints of gangs that were killed are removed first: a job has one gang at a time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for unfinished in directory.glob(".*.tmp"):
        shutil.rmtree(unfinished)
    temporary = directory / f".{name}.tmp"
    temporary.mkdir(mode=0o700)
    return temporary


def complete_checkpoint(temporary: Path) -> Path:
    """Flush the filled folder to disk, and return the path that it is renamed to: NAME."""
    final = temporary.with_name(temporary.name[1:].removesuffix(".tmp"))
    _flush_tree(temporary)
    temporary.rename(final)
    _flush(final.parent)
    return final


@contextmanager
def whole_or_absent(temporary: Path) -> Iterator[None]:
    """Remove the folder if what is done within fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _flush_tree(root: Path) -> None:
    """Flush `root`, and every regular file and directory below it, to disk."""
    for folder, _, names in os.walk(root, topdown=False):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                _flush(path)
        _flush(Path(folder))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
