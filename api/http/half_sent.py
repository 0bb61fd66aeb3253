"""Ends requests that are not sent to their end in time, so that nobody holds descriptors by half a request.

The head must be there in `HEAD_S`, and a body in `BODY_S` and one more second for each `BYTES_PER_S` of it that came,
so a large upload over a slow line takes as long as it needs. Time in which the service does not read is left out. What
cannot be read as HTTP at all is answered with a problem document, like every other error.
"""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.errors import problem

HEAD_S = 20.0
BODY_S = 20.0
BYTES_PER_S = 500
ANSWER = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
UNREADABLE = (
    "it is not HTTP/1.1 as this server reads it. The path with its query may have at most 65,535 bytes, and no field of"
    " the head may hold control characters"
)


class TimedRequests(HttpToolsProtocol):
    """A connection of uvicorn's server whose requests must come in time; one that waits for a request is uvicorn's."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._has_begun = False  # a byte of the request has come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._rest()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the rest of the head."""
        super().on_message_begin()
        self._has_begun = True
        if self._timer is None:  # the first request of a connection has been waited for since the connection was made
            self._wait(HEAD_S)

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._rest()
        self._wait(BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Give the rest of the body more time."""
        self._until_s += len(body) / BYTES_PER_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing: the request is there."""
        self._rest()
        self._has_begun = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refuses, and close the connection."""
        body = json.dumps(problem(400, UNREADABLE).marshal()).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _wait(self, limit_s: float) -> None:
        self._until_s = self.loop.time() + limit_s
        self._timer = self.loop.call_at(self._until_s, self._look)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Close the connection, unless more of the body has come since, or the service has stopped reading it."""
        if self.flow.read_paused:
            self._wait(BODY_S)
        elif self.loop.time() < self._until_s:
            self._timer = self.loop.call_at(self._until_s, self._look)
        else:
            self._timer = None
            self._end()

    def _end(self) -> None:
        if self._has_begun and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(ANSWER)
        self.transport.close()
