"""The course of a run as a bounded number of points, however long the run is."""

from collections.abc import Sequence
from dataclasses import dataclass

POINTS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Moment:
    """One round: workers held per accelerator type and per tier, and jobs waiting."""

    at_s: float
    held_workers: tuple[float, ...]  # (types,)
    of_tiers: tuple[float, ...]  # (tiers,)
    waiting_jobs: int


class Timeline:
    """Moments of a run. Once full, every second moment is dropped, and from then on half as many are kept."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._stride = 1
        self._seen = 0

    @property
    def is_due(self) -> bool:
        """Return True if the next round would be kept."""
        return self._seen % self._stride == 0

    def skip(self) -> None:
        """Count a round that is not kept."""
        self._seen += 1

    def add(
        self, at_s: float, held_workers: Sequence[float], waiting_jobs: int, of_tiers: Sequence[float] = ()
    ) -> None:
        """Count one round, and keep it if it is due."""
        if self.is_due:
            if len(self.moments) == POINTS_MAX:
                self.moments = self.moments[::2]
                self._stride *= 2
            self.moments.append(Moment(at_s, tuple(held_workers), tuple(of_tiers), waiting_jobs))
        self._seen += 1
