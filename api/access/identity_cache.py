"""A short-lived cache of what almost every request needs: who is logged in, the tiers, the size of the cluster.

What this process writes itself is dropped from the cache at once. What another process wrote, a revoked token for
example, takes effect after RECENT_S seconds at the latest. Unknown tokens are not cached, so a new token is valid
everywhere at once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from anyio.to_thread import run_sync
from fastapi import Request

from api.rules import Rules, rules_of
from api.services import Services
from gavel.types import Identity

T = TypeVar("T")
RECENT_S = 1.0
KEPT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request came with: the SHA-256 (hex) of a bearer token, or of the id of a browser's session."""

    digest: str
    is_session: bool = False


def identify(services: Services, credential: Credential) -> Identity | None:
    """Return who holds the token or is logged in to the session; None: nobody. Raise StoreUnavailable."""
    if credential.is_session:
        return services.store.session_holder(credential.digest, services.clock.now_s())
    return services.store.identify(credential.digest)


@dataclass(frozen=True, slots=True)
class _Kept:
    value: Any
    cache_version: int
    read_at_s: float


class IdentityCache:
    """The cache, for one event loop. The store is read in another thread, once for all who wait for the same."""

    def __init__(self, services: Services, now_s: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self._now_s = now_s
        self._kept: dict[str, _Kept] = {}
        self._readings: dict[tuple[str, int], asyncio.Task[Any]] = {}

    async def identity(self, credential: Credential) -> Identity | None:
        """Return who holds the token or is logged in to the session; None: nobody. Raise StoreUnavailable."""
        return await self._get(credential.digest, lambda: identify(self.services, credential))

    async def rules(self) -> Rules:
        """Return the rules that submits are checked against. Raise StoreUnavailable."""
        return await self._get("rules", lambda: rules_of(self.services))

    async def _get(self, name: str, read: Callable[[], T]) -> T:
        kept, cache_version = self._kept.get(name), self.services.store.cache_version
        if kept is not None and kept.cache_version == cache_version and self._now_s() - kept.read_at_s < RECENT_S:
            return cast(T, kept.value)
        reading = self._readings.get((name, cache_version))
        if reading is None:
            reading = self._readings[name, cache_version] = asyncio.create_task(self._read(name, cache_version, read))
            reading.add_done_callback(lambda _: self._readings.pop((name, cache_version)))
        return cast(T, await asyncio.shield(reading))  # a caller that gives up does not cancel the read for the others

    async def _read(self, name: str, cache_version: int, read: Callable[[], T]) -> T:
        now_s = self._now_s()
        value = await run_sync(read)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        if value is not None:
            self._kept[name] = _Kept(value, cache_version, now_s)
        return value


def identity_cache_of(request: Request) -> IdentityCache:
    """Return the cache of the app that serves this request."""
    return cast(IdentityCache, request.app.state.recent)
