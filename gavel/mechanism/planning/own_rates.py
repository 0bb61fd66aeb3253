"""A job's own speed: the one place that asks the estimator how fast a job runs on each type."""

from collections.abc import Mapping, Sequence

from gavel.mechanism.planning.problem import as_known
from gavel.ports import ThroughputEstimate, ThroughputEstimator
from gavel.types import AcceleratorType, Job


def own_estimates(
    job: Job, estimator: ThroughputEstimator, types: Sequence[AcceleratorType]
) -> dict[AcceleratorType, ThroughputEstimate]:
    """Return the estimate of the job on each of `types`, those where its gang can run (cluster/feasibility.py).

    The speed is that of the gang alone on its workers and on as few nodes as possible, under the job's own kind if it
    was seen to differ from the rest of its kind.
    """
    estimates = estimator.estimate(as_known(job, estimator).spec, types)
    return {name: each for name, each in zip(types, estimates, strict=True) if each.steps_per_s > 0}


def reliable_rates(estimates: Mapping[AcceleratorType, ThroughputEstimate]) -> dict[AcceleratorType, float]:
    """Return the steps per second on the types whose estimates are reliable enough for a promise to a user."""
    return {name: each.steps_per_s for name, each in estimates.items() if each.source.is_reliable}
