"""Who knows how fast a job runs where."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gavel.types import (
    AcceleratorType,
    AllocationProblem,
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
    def interval_steps_per_s(self) -> tuple[float, float]:
        """Holds the truth nine times in ten."""
        factor = math.exp(1.645 * self.relative_error)
        return self.steps_per_s / factor, self.steps_per_s * factor


class ThroughputEstimator(Protocol):
    """Learns throughput per job kind, scale factor and accelerator type."""

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """One estimate for each of `types`, in order; always finite and positive."""

    def learn(self, measurements: Sequence[Measurement]) -> "ThroughputEstimator":
        """A new estimator that also knows these; repeated or out-of-order measurements change nothing."""

    def kind_of(self, job: Job) -> str:
        """The kind to ask for: the job's, or `kind#job` once the job was seen to differ from the rest of its kind."""

    def pair_rates(self, jobs: Sequence[Job], types: Sequence[AcceleratorType]) -> PairRates:
        """What `jobs`, the rows of a problem, reach two and two on the same workers."""

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Everything learned so far, sorted by kind, scale factor and type."""


class ProfilingChoice(Protocol):
    """Chooses what is worth measuring; asked once for each round that is decided, in order of time."""

    def __call__(
        self, jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
    ) -> tuple[tuple[JobId, AcceleratorType], ...]:
        """(job, type) pairs to send to measure, the best first, for one round each; `jobs` are the problem's rows."""
