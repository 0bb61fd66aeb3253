"""Reads the bounded log of a job by its offset since the job's first line, rotated or not."""

import json
import os
from pathlib import Path

RETRIES = 20


def read_log(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int]:
    """At most `limit_bytes` of the log from `offset` on, and the offset to ask for next.

    Offsets count bytes since the job's first line. What the bound has removed is skipped: the answer then begins with
    the oldest byte that is left. A log that does not exist (yet) is empty.
    """
    for _ in range(RETRIES):  # a rotation between two of our steps shows; it is over in microseconds
        found = _read_once(path, offset, limit_bytes)
        if found is not None:
            return found
    return b"", offset


def _read_once(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int] | None:
    current, older = _open(path), _open(path.with_name(path.name + ".1"))
    try:
        return _read_files(path, current, older, offset, limit_bytes)
    finally:
        for file in (current, older):
            if file is not None:
                os.close(file)


def _read_files(
    path: Path, current: int | None, older: int | None, offset: int, limit_bytes: int
) -> tuple[bytes, int] | None:
    current_size, older_size = _size(current), _size(older)
    base = _base(path, current, older, current_size)
    if base is None:
        return None
    start = max(offset, base - older_size)
    end = base + current_size
    if start >= end or limit_bytes <= 0:
        return b"", min(start, end)
    output = b""
    if older is not None and start < base:
        output = os.pread(older, min(limit_bytes, base - start), start - base + older_size)
    if current is not None and len(output) < limit_bytes and start + len(output) >= base:
        output += os.pread(current, limit_bytes - len(output), start + len(output) - base)
    return output, start + len(output)


def _base(path: Path, current: int | None, older: int | None, current_size: int) -> int | None:
    """Offset of the current file's first byte; None if a rotation came between. Order as in `supervisor.Log`."""
    try:
        said = json.loads(path.with_name(path.name + ".base").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0 if older is None else None
    if older is not None and os.fstat(older).st_ino == said["inode"]:
        return int(said["end"])
    if current is not None and os.fstat(current).st_ino == said["inode"]:  # announced, not renamed yet
        return int(said["end"]) - current_size
    return None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _size(file: int | None) -> int:
    return 0 if file is None else os.fstat(file).st_size
