"""Chooses what a round measures, by default."""

from collections.abc import Sequence

import numpy as np

from gavel.ports import ThroughputEstimator
from gavel.types import AcceleratorType, AllocationProblem, Job, JobId


def unmeasured(
    jobs: Sequence[Job], problem: AllocationProblem, estimator: ThroughputEstimator
) -> tuple[tuple[JobId, AcceleratorType], ...]:
    """Return the (job, type) pairs to measure: the job can run there, and nobody has measured or stated its rate.

    A job is sent to measure a type once; if that round measured nothing, the inferred rate is used.
    """
    believed = estimator.matrix([job.spec for job in jobs], problem.accelerator_types)
    fits = problem.throughput_steps_per_s[: len(jobs), 0] > 0
    cells = np.argwhere(fits & believed.is_worth_measuring).tolist()
    pairs = [(jobs[row], problem.accelerator_types[column]) for row, column in cells]
    return tuple((job.id, name) for job, name in pairs if not job.rounds_received.get(name, 0))
