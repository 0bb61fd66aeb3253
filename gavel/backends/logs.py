"""Reads the bounded log of a job by its offset since the job's first line, rotated or not."""

import os
from pathlib import Path

from gavel.backends.machine import open_plain
from gavel.backends.output import rotation_of

RETRIES = 20


def read_log(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int]:
    """Return at most `limit_bytes` of the log from `offset` on, and the offset to ask for next.

    Offsets count bytes since the job's first line. What the bound has removed is skipped: the result then begins with
    the oldest byte that is left. A log that does not exist (yet) is empty.
    """
    for _ in range(RETRIES):  # a rotation meanwhile is detected; it takes microseconds
        part = _read_once(path, offset, limit_bytes)
        if part is not None:
            return part
    return _read_once(path, offset, limit_bytes, is_torn=True) or (b"", offset)


def _read_once(path: Path, offset: int, limit_bytes: int, *, is_torn: bool = False) -> tuple[bytes, int] | None:
    """Return one read; None if the log was rotated meanwhile. Opening the older file first keeps the two apart.

    With `is_torn` the file between them, which a job may have damaged, names neither: the older one counts as first.
    """
    older, current = _open(path.with_name(path.name + ".1")), _open(path)
    try:
        spans = (0, _size(older)) if is_torn else _spans(path, current, older)
        return None if spans is None else _read_files(current, older, spans, offset, limit_bytes)
    finally:
        for file in (current, older):
            if file is not None:
                os.close(file)


def _read_files(
    current: int | None, older: int | None, spans: tuple[int, int], offset: int, limit_bytes: int
) -> tuple[bytes, int]:
    begin, base = spans
    start, end = max(offset, begin), base + _size(current)
    if start >= end or limit_bytes <= 0:
        return b"", min(start, end)
    output = b""
    if older is not None and start < base:
        output = os.pread(older, min(limit_bytes, base - start), start - begin)
    if current is not None and len(output) < limit_bytes:
        output += os.pread(current, limit_bytes - len(output), start + len(output) - base)
    return output, start + len(output)


def _spans(path: Path, current: int | None, older: int | None) -> tuple[int, int] | None:
    """Return the offset of the first byte of the older and of the current file; None if a rotation came between."""
    rotation = rotation_of(str(path))
    if rotation is None:
        return (0, 0) if older is None else None
    inode, end = rotation
    if older is not None and os.fstat(older).st_ino == inode:
        return end - _size(older), end
    if current is not None and os.fstat(current).st_ino == inode:
        begin = end - _size(current)  # a rotation has begun: the older file may be gone already
        return begin, begin
    return None


def _open(path: Path) -> int | None:
    """Return a descriptor of a plain file; None if there is none, or something else in its place."""
    try:
        return open_plain(str(path))
    except FileNotFoundError:
        return None


def _size(file: int | None) -> int:
    return 0 if file is None else os.fstat(file).st_size
