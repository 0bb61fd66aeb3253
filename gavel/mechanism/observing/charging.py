"""What a commit charges to the tiers: accelerator hours weighted by relative speed, and money."""

from collections.abc import Iterable, Mapping

from gavel.mechanism.planning.own_rates import own_estimates
from gavel.ports import ThroughputEstimator
from gavel.types import AcceleratorType, Cluster, Job, JobId, Usage, month_of

SECONDS_PER_HOUR = 3600.0


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
    prices, capacity = cluster.mean_price_usd_per_hour(), cluster.capacity_workers()
    hours: dict[str, float] = {}
    costs: dict[str, float] = {}
    for job in changed:
        for name, worker_s in _newly_held(before.get(job.id), job).items():
            worker_hours = worker_s / SECONDS_PER_HOUR
            speed = _relative_speed(job, name, capacity, estimator)
            hours[job.spec.tier] = hours.get(job.spec.tier, 0.0) + worker_hours * speed
            costs[job.spec.tier] = costs.get(job.spec.tier, 0.0) + worker_hours * prices.get(name, 0.0)
    month = month_of(now_s)
    return tuple(
        Usage(tier=tier, month=month, accelerator_hours=hours[tier], cost_usd=costs[tier]) for tier in sorted(hours)
    )


def _newly_held(before: Job | None, after: Job) -> dict[AcceleratorType, float]:
    """Worker seconds by type since `before`."""
    if before is not None and after.received_s is before.received_s:
        return {}
    worker_s_before = before.worker_s if before else {}
    more = {name: worker_s - worker_s_before.get(name, 0.0) for name, worker_s in after.worker_s.items()}
    return {name: worker_s for name, worker_s in more.items() if worker_s > 0}


def _relative_speed(
    job: Job, name: AcceleratorType, capacity: Mapping[AcceleratorType, int], estimator: ThroughputEstimator
) -> float:
    """The job's relative speed on the type, T_mj / max_j T_mj; 1 if the type has left or no rate is known."""
    rates = {each: estimate.steps_per_s for each, estimate in own_estimates(job, estimator, capacity).items()}
    fastest = max(rates.values(), default=0.0)
    return rates[name] / fastest if name in rates and fastest > 0 else 1.0
