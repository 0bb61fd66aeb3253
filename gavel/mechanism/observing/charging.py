"""What a commit charges to the tiers: accelerator hours weighted by relative speed, and money."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gavel.mechanism.planning.problem import as_known, rates_of
from gavel.ports import ThroughputEstimator
from gavel.types import AcceleratorType, Cluster, Job, JobId, Usage, month_of

SECONDS_PER_HOUR = 3600.0


class _Held(NamedTuple):
    """Worker seconds that a job held of a type."""

    job: Job
    accelerator_type: AcceleratorType
    worker_s: float


def charges(
    before: Mapping[JobId, Job],
    changed: Iterable[Job],
    *,
    cluster: Cluster,
    estimator: ThroughputEstimator,
    now_s: float,
) -> tuple[Usage, ...]:
    """Return the charges by tier for the worker seconds held since `before`.

    An hour on a job's fastest type counts as 1 accelerator hour, on another type as its relative speed. Money is
    charged at the mean price of the type's workers, whatever the speed. Jobs that share a worker pay half each.
    """
    held = [each for job in changed for each in _newly_held(before.get(job.id), job)]
    if not held:
        return ()
    hours: dict[str, float] = {}
    costs: dict[str, float] = {}
    prices = cluster.mean_price_usd_per_hour()
    for (job, name, worker_s), speed in zip(held, _relative_speeds(held, cluster, estimator), strict=True):
        tier, worker_hours = job.spec.tier, worker_s / SECONDS_PER_HOUR
        hours[tier] = hours.get(tier, 0.0) + worker_hours * speed
        costs[tier] = costs.get(tier, 0.0) + worker_hours * prices.get(name, 0.0)
    month = month_of(now_s)
    return tuple(
        Usage(tier=tier, month=month, accelerator_hours=hours[tier], cost_usd=costs[tier]) for tier in sorted(hours)
    )


def _newly_held(before: Job | None, after: Job) -> list[_Held]:
    """Worker seconds by type since `before`."""
    if before is not None and after.received_s is before.received_s:
        return []
    worker_s_before = before.worker_s if before else {}
    more = ((name, worker_s - worker_s_before.get(name, 0.0)) for name, worker_s in after.worker_s.items())
    return [_Held(after, name, worker_s) for name, worker_s in more if worker_s > 0]


def _relative_speeds(held: Sequence[_Held], cluster: Cluster, estimator: ThroughputEstimator) -> list[float]:
    """The relative speed of each job on its type, T_mj / max_j T_mj; 1 if the type has left or no rate is known."""
    column_of = {name: column for column, name in enumerate(cluster.accelerator_types)}
    capacity = np.array(list(cluster.capacity_workers().values()), dtype=np.int64)
    specs = [as_known(each.job, estimator).spec for each in held]
    rates = rates_of(specs, tuple(column_of), capacity, estimator.estimate)
    fastest = rates.max(axis=1, initial=0.0)
    return [
        rate / most if (column := column_of.get(each.accelerator_type)) is not None and (rate := row[column]) else 1.0
        for each, row, most in zip(held, rates.tolist(), fastest.tolist(), strict=True)
    ]
