"""Checkpoints that are whole or absent: written beside their place, flushed to disk, then renamed into it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def write_checkpoint(directory: Path, name: str, save: Callable[[Path], object]) -> Path:
    """Let `save` fill `directory/name`, flush it to disk and return its path; raises what `save` raises.

    Unfinished checkpoints (`.NAME.tmp`) of gangs that were killed are removed first: a job has one gang at a time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for unfinished in directory.glob(".*.tmp"):
        shutil.rmtree(unfinished)
    temporary, final = directory / f".{name}.tmp", directory / name
    temporary.mkdir(mode=0o700)
    try:
        save(temporary)
        _flush_tree(temporary)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _flush(directory)
    return final


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
