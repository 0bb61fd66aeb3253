"""Predictions of starts and ends of jobs, with the actual ends."""

from dataclasses import dataclass

from gavel.types.jobs import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A predicted instant, with the interval that should hold the actual one nine times in ten."""

    at_s: float
    low_s: float
    high_s: float

    def holds(self, at_s: float) -> bool:
        """Return True if the instant is inside the interval."""
        return self.low_s <= at_s <= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction made in a job's first round; `finished_at_s` is set once the job has completed.

    `start` is None for a job that had started already.
    """

    job_id: JobId
    made_at_s: float
    finish: Expected
    start: Expected | None = None
    started_at_s: float | None = None
    finished_at_s: float | None = None
