"""An estimator that knows: the true throughputs, for runs that are not about estimation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, JobSpec, Measurement


@dataclass(frozen=True, slots=True)
class KnownThroughputs:
    """Implements ThroughputEstimator with a given table; 0 steps/s: the gang cannot run there."""

    steps_per_s: Mapping[tuple[str, int, AcceleratorType], float]

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        """The true rates, in the order of `types`."""
        return tuple(
            ThroughputEstimate(
                kind=spec.kind,
                scale_factor=spec.scale_factor,
                accelerator_type=name,
                steps_per_s=self.steps_per_s.get((spec.kind, spec.scale_factor, name), 0.0),
                relative_error=0.0,
                source="stated",
            )
            for name in types
        )

    def learn(self, measurements: Sequence[Measurement]) -> "KnownThroughputs":
        """Nothing new: the table is the truth."""
        return self

    def table(self) -> tuple[ThroughputEstimate, ...]:
        """Nothing was learned."""
        return ()
