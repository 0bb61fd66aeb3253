"""What the service said of a job's future, and what became of it."""

from dataclasses import dataclass

from gavel.types.jobs import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An instant with the interval that should hold it nine times in ten."""

    at_s: float
    low_s: float
    high_s: float

    def holds(self, at_s: float) -> bool:
        """True if that instant is inside the interval."""
        return self.low_s <= at_s <= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What was expected of a job in the first round that knew it; `finished_at_s` once it has completed.

    `start` is None for a job that had started before.
    """

    job_id: JobId
    made_at_s: float
    finish: Expected
    start: Expected | None = None
    started_at_s: float | None = None
    finished_at_s: float | None = None
