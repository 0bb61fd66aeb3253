"""The course of a run in a bounded number of points, however long it takes."""

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
    """Moments of a run. Once full, every other one goes and half as many come in."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._stride = 1
        self._seen = 0

    @property
    def is_due(self) -> bool:
        """True if the next round would be kept."""
        return self._seen % self._stride == 0

    def skip(self) -> None:
        """A round whose turn it is not."""
        self._seen += 1

    def add(
        self, at_s: float, held_workers: Sequence[float], waiting_jobs: int, of_tiers: Sequence[float] = ()
    ) -> None:
        """One round; kept if it is its turn."""
        if self.is_due:
            if len(self.moments) == POINTS_MAX:
                self.moments = self.moments[::2]
                self._stride *= 2
            self.moments.append(Moment(at_s, tuple(held_workers), tuple(of_tiers), waiting_jobs))
        self._seen += 1
