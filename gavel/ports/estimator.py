"""Who knows how fast a job runs where."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gavel.types import (
    AcceleratorType,
    AllocationProblem,
    BoolArray,
    FloatArray,
    Job,
    JobId,
    JobSpec,
    Measurement,
    PairRates,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputEstimate:
    """What is believed of one (job kind, scale factor, accelerator type), alone or beside a partner on one worker.

    `stated_by` is what users said it would be; `refused` counts reports of impossible progress that nobody believed.
    """

    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    steps_per_s: float
    relative_error: float  # one standard deviation of log(steps/s)
    source: str  # "measured", "completed" (from others, within 10 %), "stated", "inferred" (roughly) or "unknown"
    measurements: int = 0
    partner: str | None = None
    placement: str = "consolidated"
    stated_by: Mapping[str, float] = field(default_factory=dict)
    refused: int = 0

    @property
    def is_measured(self) -> bool:
        """True once at least one representative measurement counted."""
        return self.source == "measured"

    @property
    def is_worth_measuring(self) -> bool:
        """True if nobody has measured or stated it, and what others say of it is rough."""
        return self.source in ("unknown", "inferred") and not self.measurements

    @property
    def interval_steps_per_s(self) -> tuple[float, float]:
        """Holds the truth nine times in ten."""
        factor = math.exp(1.645 * self.relative_error)
        return self.steps_per_s / factor, self.steps_per_s * factor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThroughputMatrix:
    """Estimates of n specifications on m types as arrays, (n, m) each; the fields of `ThroughputEstimate`."""

    steps_per_s: FloatArray
    relative_error: FloatArray
    is_worth_measuring: BoolArray

    @classmethod
    def of(cls, rows: Sequence[Sequence[ThroughputEstimate]], types: Sequence[AcceleratorType]) -> "ThroughputMatrix":
        """The plain form: n times the estimates of the m types."""
        fields = [[(each.steps_per_s, each.relative_error, each.is_worth_measuring) for each in row] for row in rows]
        rate, error, is_worth_measuring = np.moveaxis(
            np.array(fields, dtype=float).reshape(len(rows), len(types), 3), 2, 0
        )
        return cls(steps_per_s=rate, relative_error=error, is_worth_measuring=is_worth_measuring > 0)


class ThroughputEstimator(Protocol):
    """Learns throughput per job kind, scale factor and accelerator type."""

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """One estimate for each of `types`, in order; always finite and positive."""

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        """The same of many specifications, as arrays; `ThroughputMatrix.of` makes it of their estimates."""

    def learn(self, measurements: Sequence[Measurement]) -> "ThroughputEstimator":
        """A new estimator that also knows these; repeated or out-of-order measurements change nothing."""

    def kind_of(self, job: Job) -> str:
        """The kind to ask for: the job's, or `kind#job` once the job was seen to differ from the rest of its kind."""

    def pair_rates(self, jobs: Sequence[Job], types: Sequence[AcceleratorType], *, tries: int = 0) -> PairRates:
        """What `jobs`, the rows of a problem, reach two and two on the same workers.

        So many pairs that nobody measured have the rate that they may well reach, so that a policy may try them.
        """

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything learned so far, sorted by kind, scale factor and type."""


class ProfilingChoice(Protocol):
    """Chooses what is worth measuring; asked once for each round that is decided, in order of time."""

    def __call__(
        self, jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
    ) -> tuple[tuple[JobId, AcceleratorType], ...]:
        """(job, type) pairs to send to measure, the best first, for one round each; `jobs` are the problem's rows."""
