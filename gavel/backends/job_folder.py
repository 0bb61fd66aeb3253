"""Looks into folders that a job writes, which may hold anything: links are not followed, depth and number are bounded.

Standard library only: the supervisor uses it, too.
"""

import os
import stat
from collections.abc import Iterator

from gavel.backends.machine import open_plain

DEPTH_MAX = 32
ENTRIES_MAX = 10_000
CHUNK_BYTES = 1 << 20

Entry = tuple[str, os.stat_result]
"""A path below the folder, and the status of what is there; a regular file, or else nothing to be read."""


def entries(root: str, most: int = ENTRIES_MAX) -> Iterator[Entry]:
    """Yield every entry below `root` that is no directory; none if it is no folder.

    At most `most` are read, with the directories. Directories deeper than 32 levels are yielded and not opened.
    """
    try:
        folder = _open_folder(root, None)
    except OSError:
        return
    yield from _below(folder, "", 1, iter(range(most)))


def _below(folder: int, prefix: str, depth: int, left: Iterator[int]) -> Iterator[Entry]:
    """Yield what is below an open folder, and close it. `left` has a number for each entry that may still be read."""
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                if next(left, None) is None:
                    return
                yield from _entry(folder, entry, prefix + entry.name, depth, left)
    except OSError:
        return  # it was removed meanwhile
    finally:
        os.close(folder)


def _entry(folder: int, entry: "os.DirEntry[str]", path: str, depth: int, left: Iterator[int]) -> Iterator[Entry]:
    try:
        if entry.is_dir(follow_symlinks=False) and depth < DEPTH_MAX:
            yield from _below(_open_folder(entry.name, folder), f"{path}/", depth + 1, left)
        else:
            yield path, entry.stat(follow_symlinks=False)
    except OSError:
        return


def total_bytes(root: str) -> int:
    """Return the size of the regular files below `root`; a lower bound if there are more than 10,000 entries."""
    return sum(status.st_size for _, status in entries(root) if stat.S_ISREG(status.st_mode))


def open_file(root: str, path: str) -> int:
    """Return a descriptor of a regular file below `root`. Raises OSError, for every path that leads elsewhere, too.

    No part of the path may be a link, so that nothing outside can be reached whatever the job does meanwhile.
    """
    *folders, name = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in (*folders, name)):
        raise FileNotFoundError(path)
    folder = _open_folder(root, None)
    try:
        for part in folders:
            inner = _open_folder(part, folder)
            os.close(folder)
            folder = inner
        return open_plain(name, folder)
    finally:
        os.close(folder)


def content(file: int, size_bytes: int) -> Iterator[bytes]:
    """Yield an open file up to the size that it has now: the job may go on writing."""
    left = size_bytes
    while left and (chunk := os.read(file, min(left, CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk


def _open_folder(name: str, inside: int | None) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
