"""Answers with a file that a job has written: whole or in ranges, never rendered by a browser."""

import os
import re
from collections.abc import Iterator
from urllib.parse import quote

from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gavel.backends.nodes.stored_outputs import StoredFile

CHUNK_BYTES = 1 << 20
HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-cache"}


class OpenFileResponse(FileResponse):
    """An answer with an open file, which is closed afterwards: what its path means by then does not matter."""

    def __init__(self, file: int, filename: str) -> None:
        """`file` is a descriptor of a regular file."""
        path, status = f"/proc/self/fd/{file}", os.fstat(file)
        kind = "application/octet-stream"
        super().__init__(path, media_type=kind, filename=filename, stat_result=status, headers=HEADERS)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or the ranges of it that were asked for."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._file)


def stored_file_response(stored: StoredFile, filename: str, range_header: str) -> Response:
    """Return an answer with a file that is somewhere else, whole or the one range of it that was asked for.

    The file is closed afterwards.
    """
    named = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(filename)}", "Accept-Ranges": "bytes"}
    start, end, status = 0, stored.size_bytes, 200
    if asked := re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", range_header.strip()):
        start, end = _asked(asked[1], asked[2], stored.size_bytes)
        status = 206 if start < end else 416
        shown = f"{start}-{end - 1}" if start < end else "*"
        named["Content-Range"] = f"bytes {shown}/{stored.size_bytes}"
    named["Content-Length"] = str(max(0, end - start) if status != 416 else 0)
    chunks = _chunks(stored, start, end if status != 416 else start)
    return StreamingResponse(chunks, status, HEADERS | named, media_type="application/octet-stream")


def _asked(first: str, last: str, size: int) -> tuple[int, int]:
    """Return where a range begins and ends (exclusive) in a file of this size; nothing if it has no such bytes."""
    if not first:
        return max(0, size - int(last or 0)), size
    return int(first), min(size, int(last) + 1) if last else size


def _chunks(stored: StoredFile, start: int, end: int) -> Iterator[bytes]:
    with stored.file as file:
        if start < end:
            file.seek(start)
        while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
            start += len(chunk)
            yield chunk
