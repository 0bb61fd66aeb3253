"""The port of what estimates how fast each job runs on each accelerator type."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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


class ThroughputSource(StrEnum):
    """Where an estimate of a throughput comes from, the most reliable source first."""

    MEASURED = "measured"
    COMPLETED = "completed"
    STATED = "stated"
    INFERRED = "inferred"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """Return a sentence for users that says what the source means."""
        return _SENTENCES[self]

    @property
    def is_reliable(self) -> bool:
        """True if the estimate is good enough for a promise to a user."""
        return self in (ThroughputSource.MEASURED, ThroughputSource.COMPLETED, ThroughputSource.STATED)


_SENTENCES = {
    ThroughputSource.MEASURED: "Jobs reported it while they ran there.",
    ThroughputSource.COMPLETED: "Other measurements say it, to 10 %.",
    ThroughputSource.STATED: "The job's user said it at the submit; nobody has measured it yet.",
    ThroughputSource.INFERRED: "Other measurements say it roughly; it is measured when a job can run there.",
    ThroughputSource.UNKNOWN: "Nothing similar was measured: it is a guess from the hardware's peak rates.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputEstimate:
    """The estimate for one (job kind, scale factor, accelerator type), alone or colocated with a partner.

    `stated_by` is what users said it would be; `refused` counts rejected reports, those of impossible progress.
    `held_bytes` is the most memory that a job of the kind was seen to hold on one accelerator, 0: not known.
    """

    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    steps_per_s: float
    relative_error: float  # one standard deviation of log(steps/s)
    source: ThroughputSource
    measurements: int = 0
    partner: str | None = None
    placement: str = "consolidated"
    stated_by: Mapping[str, float] = field(default_factory=dict)
    refused: int = 0
    held_bytes: int = 0

    @property
    def is_measured(self) -> bool:
        """True once at least one representative measurement counted."""
        return self.source is ThroughputSource.MEASURED

    @property
    def is_worth_measuring(self) -> bool:
        """True if the rate was neither measured nor stated by a user, and is inferred only roughly."""
        is_rough = self.source in (ThroughputSource.UNKNOWN, ThroughputSource.INFERRED)
        return is_rough and not self.measurements

    @property
    def interval_steps_per_s(self) -> tuple[float, float]:
        """Return the interval that should hold the true rate nine times in ten, in steps per second."""
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
        """Return the matrix of n rows of estimates, one for each of the m types."""
        fields = [[(each.steps_per_s, each.relative_error, each.is_worth_measuring) for each in row] for row in rows]
        rate, error, is_worth_measuring = np.moveaxis(
            np.array(fields, dtype=float).reshape(len(rows), len(types), 3), 2, 0
        )
        return cls(steps_per_s=rate, relative_error=error, is_worth_measuring=is_worth_measuring > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocatedEstimate:
    """How a job does on workers that another job is on as well.

    `kept_fraction`, in [0, 1], is what it keeps of its rate alone. `is_measured`: jobs of its kind have reported it
    beside a partner of that kind; else it is what other pairs suggest. `needed_bytes` is what a rank needs of the
    memory of one accelerator, 0: not known.
    """

    kept_fraction: float
    is_measured: bool
    needed_bytes: int = 0


class ThroughputEstimator(Protocol):
    """Learns throughput per job kind, scale factor and accelerator type."""

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """Return one estimate for each of `types`, in order; always finite and positive."""

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        """Return the estimates of many specifications as arrays; `ThroughputMatrix.of` makes them from `estimate`."""

    def learn(self, measurements: Sequence[Measurement]) -> "ThroughputEstimator":
        """Return a new estimator that has learned these, too; repeated or out-of-order measurements change nothing."""

    def kind_of(self, job: Job) -> str:
        """Return the kind to ask for: the job's, or `kind#job` once the job was seen to differ from its kind."""

    def pair_rates(
        self, jobs: Sequence[Job], types: Sequence[AcceleratorType], memory_bytes: Sequence[int], *, tries: int = 0
    ) -> PairRates | None:
        """Return the rates of `jobs`, the rows of a problem, in pairs on the same workers; None if none may share.

        `memory_bytes` (m,): what every accelerator of each type has at least, 0: not known. Two jobs may share if both
        fit into it. Some pairs that nobody measured get an optimistic rate, so that a policy tries them.
        """

    def colocated_estimates(
        self, pairs: Sequence[tuple[Job, Job]], name: AcceleratorType
    ) -> tuple[ColocatedEstimate, ...]:
        """Return how the first job of each pair does beside the second on workers of a type; both have one size."""

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Return everything learned so far, sorted by kind, scale factor and type."""


class ProfilingChoice(Protocol):
    """Chooses what is worth measuring; asked once for each round that is decided, in order of time."""

    def __call__(
        self, jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
    ) -> tuple[tuple[JobId, AcceleratorType], ...]:
        """Return (job, type) pairs to measure for one round each, the best first; `jobs` are the problem's rows."""
