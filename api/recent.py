"""What almost every request asks for, remembered for a moment: who holds a token, the tiers, how large the cluster is.

What this process writes itself is forgotten at once. What another process wrote, a revoked token too, is known after
RECENT_S at the latest. A token that nobody holds is looked up each time, so a new one is good everywhere at once.
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
class _Kept:
    value: Any
    edition: int
    read_at_s: float


class Recent:
    """For one event loop; whatever has to be read is read in another thread, once for all who ask meanwhile."""

    def __init__(self, services: Services, now_s: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self._now_s = now_s
        self._kept: dict[str, _Kept] = {}
        self._readings: dict[tuple[str, int], asyncio.Task[Any]] = {}

    async def identity(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody. Raises StoreUnavailable."""
        return await self._get(token_hash, lambda: self.services.store.identify(token_hash))

    async def rules(self) -> Rules:
        """What submits are held against. Raises StoreUnavailable."""
        return await self._get("rules", lambda: rules_of(self.services))

    async def _get(self, name: str, read: Callable[[], T]) -> T:
        kept, edition = self._kept.get(name), self.services.store.edition
        if kept is not None and kept.edition == edition and self._now_s() - kept.read_at_s < RECENT_S:
            return cast(T, kept.value)
        reading = self._readings.get((name, edition))
        if reading is None:
            reading = self._readings[name, edition] = asyncio.create_task(self._read(name, edition, read))
            reading.add_done_callback(lambda _: self._readings.pop((name, edition)))
        return cast(T, await asyncio.shield(reading))  # one caller that gives up takes nothing from the others

    async def _read(self, name: str, edition: int, read: Callable[[], T]) -> T:
        now_s = self._now_s()
        value = await run_sync(read)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        if value is not None:
            self._kept[name] = _Kept(value, edition, now_s)
        return value


def recent_of(request: Request) -> Recent:
    """What the app that serves this request remembers."""
    return cast(Recent, request.app.state.recent)
