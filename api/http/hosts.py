"""Which names of the service are its own: the Host of a request, and the origin of the page that sent it."""

import json
from collections.abc import Collection
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.errors import problem
from gavel.config import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AllowedHosts:
    """Middleware that answers 400 to a request for another host than those of `allowed_hosts`, where that is set.

    Always allowed are the addresses of this machine's loopback, the one that the service listens on, and `public_url`.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        own = {*LOOPBACK, settings.host, urlsplit(settings.public_url).hostname or settings.host}
        self._allowed = {*settings.allowed_hosts.lower().split(), *own} if settings.allowed_hosts else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if its host is allowed."""
        if scope["type"] in ("http", "websocket") and self._allowed is not None:
            name = _name_in(Headers(scope=scope).get("host", ""))
            if not _is_among(name, self._allowed):
                return await _refusal()(scope, receive, send)
        await self.app(scope, receive, send)


def is_own_origin(request: Request, settings: Settings) -> bool:
    """Return whether the page that sent the request is one of ours, or the browser did not say which one it was.

    It is ours if it comes from the host that was asked, or from `public_url`: a proxy may have rewritten the host.
    """
    origin = request.headers.get("origin")
    if origin is None or origin.partition("://")[2] == request.headers.get("host"):
        return True
    return bool(settings.public_url) and "/".join(settings.public_url.split("/")[:3]) == origin


def is_encrypted(request: Request, settings: Settings) -> bool:
    """Return whether browsers reach the service by https, here or at the proxy in front of it."""
    return request.url.scheme == "https" or settings.public_url.startswith("https://")


def _name_in(host: str) -> str:
    """Return the name in a Host header, without its port; "" if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_among(name: str, allowed: Collection[str]) -> bool:
    return name in allowed or any(each.startswith("*.") and name.endswith(each[1:]) for each in allowed)


def _refusal() -> Response:
    why = problem(
        400, "the service has another name than the one in the header Host; an operator adds it to allowed_hosts"
    )
    return Response(json.dumps(why.marshal()), 400, media_type="application/problem+json")
