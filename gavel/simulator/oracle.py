"""A throughput estimator that is given the true throughputs, for runs in which nothing has to be estimated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.estimator.regions import without_regions
from gavel.ports import ColocatedEstimate, ThroughputEstimate, ThroughputMatrix, ThroughputSource
from gavel.simulator.packing import Packing
from gavel.types import AcceleratorType, Job, JobSpec, Measurement, PairRates, plain_type
from workloads.traces.throughputs import PairThroughput

Key = tuple[str, int, tuple[AcceleratorType, ...]]


@dataclass(frozen=True, slots=True)
class OracleThroughputs:
    """Implements ThroughputEstimator with a given table; 0 steps/s: the gang cannot run there.

    `colocated` holds the steps/s of gangs that share their workers; a pair that it lacks cannot share.
    """

    steps_per_s: Mapping[tuple[str, int, AcceleratorType], float]
    colocated: PairThroughput = field(default_factory=dict)
    _answers: dict[Key, tuple[ThroughputEstimate, ...]] = field(default_factory=dict, compare=False, repr=False)

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """Return the true rates, in the order of `types`."""
        key = spec.kind, spec.scale_factor, tuple(types)
        if key not in self._answers:
            self._answers[key] = tuple(self._estimate(spec, name) for name in types)
        return self._answers[key]

    def _estimate(self, spec: JobSpec, name: AcceleratorType) -> ThroughputEstimate:
        return ThroughputEstimate(
            kind=spec.kind,
            scale_factor=spec.scale_factor,
            accelerator_type=name,
            steps_per_s=self.steps_per_s.get((spec.kind, spec.scale_factor, plain_type(name)), 0.0),
            relative_error=0.0,
            source=ThroughputSource.STATED,
        )

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        """Return the true rates of many jobs; none of them is worth measuring."""
        rates = np.array([[each.steps_per_s for each in self.estimate(spec, types)] for spec in specs])
        rates = rates.reshape(len(specs), len(types))
        return ThroughputMatrix(
            steps_per_s=rates,
            relative_error=np.zeros_like(rates),
            is_worth_measuring=np.zeros(rates.shape, dtype=np.bool_),
        )

    def learn(self, measurements: Sequence[Measurement]) -> "OracleThroughputs":
        """Return this estimator: there is nothing to learn."""
        return self

    def kind_of(self, job: Job) -> str:
        """Return the kind that the job states, which is its true one."""
        return job.spec.kind

    def pair_rates(
        self, jobs: Sequence[Job], types: Sequence[AcceleratorType], memory_bytes: Sequence[int], *, tries: int = 0
    ) -> PairRates | None:
        """Return the true rates of each pair, 0 for those that do not fit together. None has to be tried."""
        if not self.colocated:
            return None
        names, _, columns = without_regions(types, memory_bytes)
        return Packing(self.colocated, names).rates([job.spec for job in jobs], np.array(columns, dtype=np.int64))

    def colocated_estimates(
        self, pairs: Sequence[tuple[Job, Job]], name: AcceleratorType
    ) -> tuple[ColocatedEstimate, ...]:
        """Return the true rates of the first of each pair as fractions of those alone; 0 for pairs of no table."""
        return tuple(
            ColocatedEstimate(
                kept_fraction=self._kept(job.spec, partner.spec, plain_type(name)),
                is_measured=True,
                needed_bytes=job.spec.accelerator_memory_bytes,
            )
            for job, partner in pairs
        )

    def _kept(self, spec: JobSpec, partner: JobSpec, name: AcceleratorType) -> float:
        alone = self.steps_per_s.get((spec.kind, spec.scale_factor, name), 0.0)
        together = self.colocated.get((spec.kind, partner.kind, spec.scale_factor, name), 0.0)
        return min(1.0, together / alone) if alone > 0 else 0.0

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Return no estimates: nothing was learned."""
        return ()
