"""Answers with a file that a job has written: whole or in ranges, never rendered by a browser."""

import os

from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

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
