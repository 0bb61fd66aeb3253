"""The course of a run in a bounded number of points, however long it takes."""

from collections.abc import Sequence

POINTS_MAX = 1024


class Timeline:
    """Workers held per type and jobs waiting, over time. Once full, every other point goes and half as many come in."""

    def __init__(self, types: int) -> None:
        self.at_s: list[float] = []
        self.held_workers: list[tuple[float, ...]] = []  # (types,) each
        self.waiting_jobs: list[int] = []
        self._types = types
        self._stride = 1
        self._seen = 0

    def add(self, at_s: float, held_workers: Sequence[float], waiting_jobs: int) -> None:
        """One round; kept if it is its turn."""
        if self._seen % self._stride == 0:
            if len(self.at_s) == POINTS_MAX:
                self._thin()
            self.at_s.append(at_s)
            self.held_workers.append(tuple(held_workers))
            self.waiting_jobs.append(waiting_jobs)
        self._seen += 1

    def _thin(self) -> None:
        self.at_s, self.held_workers = self.at_s[::2], self.held_workers[::2]
        self.waiting_jobs = self.waiting_jobs[::2]
        self._stride *= 2
