"""What many requests ask about all unfinished jobs, made once: on a large cluster in a thread of its own."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from api.schemas import AllocationView
from api.schemas.overview import Summary
from api.views.grouping import grouped_view
from api.views.overview import Queued, line_of, summary
from gavel.errors import StoreUnavailable
from gavel.ports import Snapshot
from gavel.types import Cluster

LARGE_JOBS = 20_000  # from so many on, reading and counting them takes longer than a request should
AGE_S = 5.0  # what was made longer ago is answered from only while the next is being made


class Present:
    """A snapshot with what is derived from it, each made when it is first asked for; the same for all operators."""

    def __init__(self, snapshot: Snapshot, cluster: Cluster, notes: tuple[str, ...], now_s: float) -> None:
        self.snapshot = snapshot
        self._cluster, self._notes, self._now_s = cluster, notes, now_s

    @property
    def is_large(self) -> bool:
        """Return whether there are so many jobs that answers may be some seconds old."""
        return len(self.snapshot.jobs) >= LARGE_JOBS

    @cached_property
    def line(self) -> Queued:
        """Return the queue as of the newest round."""
        records = self.snapshot.round_records
        return line_of(self.snapshot.jobs, records[-1] if records else None)

    @cached_property
    def matrix(self) -> AllocationView | None:
        """Return the newest allocation with a row for each tier and kind; None before any round."""
        records = self.snapshot.round_records
        return grouped_view(records[-1], self.snapshot.jobs, self._now_s) if records else None

    @cached_property
    def summary(self) -> Summary:
        """Return the summary of all jobs."""
        return summary(self.snapshot, self._cluster, self._notes, lambda _: True, self._now_s)


class PresentReader:
    """Gives the newest `Present`; of a large cluster one made at most AGE_S ago, while a thread makes the next."""

    def __init__(
        self,
        read: Callable[[], Snapshot],
        derive: Callable[[Snapshot], Present],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._derive, self._monotonic_s = read, derive, monotonic_s
        self._present: Present | None = None
        self._made_at_s = 0.0
        self._reading = threading.Lock()

    def get(self) -> Present:
        """Return the present state. Raises StoreUnavailable."""
        present = self._present
        if present is None or not present.is_large:
            return self._renewed()
        if self._monotonic_s() - self._made_at_s > AGE_S and not self._reading.locked():
            return self._renewed()
        if self._reading.acquire(blocking=False):
            threading.Thread(target=self._renew_and_release, name="present", daemon=True).start()
        return present

    def _renew_and_release(self) -> None:
        try:
            with suppress(StoreUnavailable):  # the next request that reads reports it
                self._renew()
        finally:
            self._reading.release()

    def _renewed(self) -> Present:
        with self._reading:
            return self._renew()

    def _renew(self) -> Present:
        snapshot, present = self._read(), self._present
        if present is None or snapshot is not present.snapshot:
            present = self._derive(snapshot)
            if present.is_large:  # before it is given to anybody, so that nobody waits for it
                _ = present.line, present.matrix, present.summary
        self._present, self._made_at_s = present, self._monotonic_s()
        return present
