"""What a program says of its steps: the phases in them that are no training, and their units of work."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gavel_runtime._lease import boottime_s

PHASES_MAX = 8
PHASE_NAME_LENGTH_MAX = 32
WORK_MAX = 1e15


class Marks:
    """The seconds that this process has spent in each phase, and the units of work of the step in progress.

    A phase within another takes its time from the outer one.
    """

    def __init__(self, clock: Callable[[], float] = boottime_s) -> None:
        self._clock = clock
        self._open: list[str] = []
        self._since_s = 0.0
        self._seconds: dict[str, float] = {}
        self._names: set[str] = set()
        self._outside_s = 0.0
        self._work = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block for phase `name`. Raises ValueError for a bad name, or one name too many."""
        if not (isinstance(name, str) and 0 < len(name) <= PHASE_NAME_LENGTH_MAX):
            raise ValueError(f"phase: name {name!r}; use 1 to {PHASE_NAME_LENGTH_MAX} characters")
        if len(self._names | {name}) > PHASES_MAX:
            raise ValueError(f"phase: {name} is one name too many ({', '.join(sorted(self._names))}); use {PHASES_MAX}")
        self._names.add(name)
        self._count()
        self._open.append(name)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def add_work(self, units: float) -> None:
        """Add units to the step in progress. Raises ValueError unless they are a number from 0 to 10^15."""
        if not 0 <= units <= WORK_MAX:  # false for NaN, too
            raise ValueError(f"work: {units!r} units; give a number from 0 to {WORK_MAX:g}")
        self._work += units

    def take_step(self) -> tuple[float, float]:
        """Return the seconds in phases since the last call (+inf while one is open), and the units of work."""
        self._count()
        taken = (math.inf if self._open else self._outside_s, self._work)
        self._outside_s = self._work = 0.0
        return taken

    def take_phases(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        self._count()
        taken, self._seconds = self._seconds, {}
        return {name: round(seconds, 6) for name, seconds in taken.items()}

    def _count(self) -> None:
        now_s = self._clock()
        if self._open:
            elapsed_s = max(0.0, now_s - self._since_s)
            self._seconds[self._open[-1]] = self._seconds.get(self._open[-1], 0.0) + elapsed_s
            self._outside_s += elapsed_s
        self._since_s = now_s
