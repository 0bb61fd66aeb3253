"""Which jobs may share their workers, two and two, and how fast they run then."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gavel.config import Settings
from gavel.ports import ThroughputEstimator
from gavel.types import AcceleratorType, Cluster, Job, PairRates

MOST_JOBS = 2_000  # of whom pairs are looked at; with more, a solve over all pairs takes seconds


def pair_rates(
    jobs: Sequence[Job], cluster: Cluster, estimator: ThroughputEstimator, settings: Settings
) -> PairRates | None:
    """Return the rates of `jobs`, the rows of a problem, in pairs; None if the settings, or memory, allow no pair.

    A session is in no pair: who comes onto its accelerators is for its user to allow (shared_sessions.py, guests.py).
    """
    if not settings.space_sharing or len(jobs) > MOST_JOBS:
        return None
    types, rows = cluster.accelerator_types, [row for row, job in enumerate(jobs) if not job.spec.is_interactive]
    packable = [jobs[row] for row in rows]
    rates = estimator.pair_rates(packable, types, memory_of_types(cluster, types), tries=settings.pair_trials)
    if rates is None or len(rows) == len(jobs):
        return rates
    kind_of_job = np.full(len(jobs), -1, dtype=np.int64)
    kind_of_job[rows] = rates.kind_of_job
    return replace(rates, kind_of_job=kind_of_job)


def memory_of_types(cluster: Cluster, types: Sequence[AcceleratorType]) -> list[int]:
    """Return the bytes of memory that every accelerator of each type has at least; 0: not known of one."""
    least = dict.fromkeys(types, 1 << 62)
    for worker in cluster.workers:
        least[worker.accelerator_type] = min(least[worker.accelerator_type], worker.memory_bytes)
    return [least[name] for name in types]
