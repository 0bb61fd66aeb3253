"""ASGI middleware that every request passes: a size limit, counts and times by route, an id, a log line."""

import itertools
import re
import secrets
import time
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gavel.code_tree import BODY_BYTES

log = structlog.get_logger("gavel.api")

ID_HEADER = "X-Request-Id"
FAILED = 400

LogRequests = Literal["none", "failed", "all"]

_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NEXT_ID = itertools.count(
    secrets.randbits(63)
)  # random bytes for each request would cost a system call, which releases the GIL


class BodyLimit:
    """ASGI middleware that answers 413 when more of a request body is read than allowed.

    That is `limit_bytes`, or for paths that begin with `code_path` the limit of code.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int, code_path: str) -> None:
        self.app = app
        self._limit_bytes = limit_bytes
        self._code_path = code_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request and count the bytes that are read."""
        read_bytes = 0
        is_code = str(scope.get("path", "")).startswith(self._code_path)
        limit_bytes = BODY_BYTES if is_code else self._limit_bytes

        async def counted() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > limit_bytes:
                raise HTTPException(413, f"the body is larger than {limit_bytes} bytes")
            return message

        await self.app(scope, counted if scope["type"] == "http" else receive, send)


class RequestLog:
    """ASGI middleware that logs requests.

    Each log line written while a request is served has the request's id, and so has the answer. A caller that sends
    X-Request-Id gets that id. `log_requests` says which requests get a line of their own.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry, log_requests: LogRequests) -> None:
        self.app = app
        self._logged_from = {"none": 600, "failed": FAILED, "all": 0}[log_requests]
        labels = ("method", "route")
        self._count = Counter("gavel_http_requests", "Requests.", (*labels, "status"), registry=registry)
        self._seconds = Histogram("gavel_http_seconds", "Until the last byte.", labels, registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, then count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, begun, request_id = 500, time.perf_counter(), _request_id(scope)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[ID_HEADER] = request_id
            await send(message)

        bound = structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self.app(scope, receive, watched)
        finally:
            self._note(scope, status, time.perf_counter() - begun)
            structlog.contextvars.reset_contextvars(**bound)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        # Unknown paths share one name; otherwise any caller could add metric series without limit.
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if route != "none" else "any"
        self._count.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
        if status >= self._logged_from:
            client, seconds = (scope.get("client") or ("",))[0], round(seconds, 6)
            log.info("request.served", method=method, route=route, status=status, seconds=seconds, client=client)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(ID_HEADER, "")
    return given if _GIVEN_ID.fullmatch(given) else f"{next(_NEXT_ID):016x}"
