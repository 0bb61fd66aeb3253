"""Limits how often a user may call: each user has a token bucket in this process, which refills steadily."""

import time
from collections.abc import Callable

from api.http.errors import problem
from gavel.types import Identity, Scope

BURST_S = 2.0  # seconds of the rate that may be used at once after a pause
USERS_MAX = 10_000  # buckets kept; beyond that all are dropped and start full again


class RateLimit:
    """The limit, for one event loop.

    A user's jobs count as the user; operators have no limit, since they can change it.
    """

    def __init__(self, requests_per_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._requests_per_s = requests_per_s
        self._burst = max(1.0, BURST_S * requests_per_s)
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}  # user -> (requests left, as of)

    def count(self, caller: Identity) -> None:
        """Count one request of the caller. Raise a 429 problem that says when to try again."""
        if caller.scope is Scope.OPERATOR:
            return
        now_s = self._now_s()
        left, as_of_s = self._left.get(caller.user, (self._burst, now_s))
        left = min(self._burst, left + (now_s - as_of_s) * self._requests_per_s)
        if left < 1.0:
            wait_s = (1.0 - left) / self._requests_per_s
            raise problem(
                429,
                f"you may send {self._requests_per_s:g} requests per second; wait a moment, or follow GET /v1/watch",
                headers={"Retry-After": str(max(1, round(wait_s)))},
            )
        if len(self._left) >= USERS_MAX:
            self._left.clear()
        self._left[caller.user] = (left - 1.0, now_s)
