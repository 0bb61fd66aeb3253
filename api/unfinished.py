"""How many unfinished jobs users and tiers have: counted now and then, exactly before anybody is refused."""

import threading
from collections import Counter
from collections.abc import Iterable

from gavel.ports import Store
from gavel.types import JobSpec

COUNTED_FOR_S = 1.0  # how long a count may serve; another process's submits are seen no later


class Unfinished:
    """Counts of unfinished jobs by user and tier. A count misses ends since it was taken, never a submit of our own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted_at_s = float("-inf")
        self._users: Counter[str] = Counter()
        self._tiers: Counter[str] = Counter()

    def of_user(self, name: str) -> int:
        """As of the last count, with what was added since."""
        return self._users[name]

    def of_tier(self, name: str) -> int:
        """As of the last count, with what was added since."""
        return self._tiers[name]

    def add(self, specs: Iterable[JobSpec]) -> None:
        """Jobs that are about to be submitted."""
        with self._lock:
            for spec in specs:
                self._users[spec.user] += 1
                self._tiers[spec.tier] += 1

    def count(self, store: Store, now_s: float, *, exactly: bool) -> None:
        """Count anew, unless the last count may serve."""
        with self._lock:
            if not exactly and 0 <= now_s - self._counted_at_s < COUNTED_FOR_S:
                return
            jobs = store.snapshot().jobs.values()
            self._users = Counter(job.spec.user for job in jobs)
            self._tiers = Counter(job.spec.tier for job in jobs)
            self._counted_at_s = now_s
