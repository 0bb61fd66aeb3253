"""What a commit charges to the tiers: accelerator hours weighted by relative speed, and money."""

from collections.abc import Iterable, Mapping

import numpy as np

from gavel.mechanism.problem import Estimate
from gavel.types import AcceleratorType, Cluster, Job, JobId, JobSpec, Usage, month_of

SECONDS_PER_HOUR = 3600.0


def charges(
    before: Mapping[JobId, Job], changed: Iterable[Job], *, cluster: Cluster, estimate: Estimate, now_s: float
) -> tuple[Usage, ...]:
    """By tier, for the time that gangs were held since `before`; an hour on a job's fastest type counts whole.

    Money is charged whole on every type, at the mean price of its workers.
    """
    prices = _prices(cluster)
    hours: dict[str, float] = {}
    costs: dict[str, float] = {}
    for job in changed:
        for name, held_s in _newly_held(before.get(job.id), job).items():
            worker_hours = held_s / SECONDS_PER_HOUR * job.spec.scale_factor
            speed = _relative_speed(job.spec, name, cluster.accelerator_types, estimate)
            hours[job.spec.tier] = hours.get(job.spec.tier, 0.0) + worker_hours * speed
            costs[job.spec.tier] = costs.get(job.spec.tier, 0.0) + worker_hours * prices.get(name, 0.0)
    month = month_of(now_s)
    return tuple(
        Usage(tier=tier, month=month, accelerator_hours=hours[tier], cost_usd=costs[tier]) for tier in sorted(hours)
    )


def _newly_held(before: Job | None, after: Job) -> dict[AcceleratorType, float]:
    known = before.received_s if before else {}
    if after.received_s is known:
        return {}
    more = {name: held_s - known.get(name, 0.0) for name, held_s in after.received_s.items()}
    return {name: held_s for name, held_s in more.items() if held_s > 0}


def _relative_speed(
    spec: JobSpec, name: AcceleratorType, types: tuple[AcceleratorType, ...], estimate: Estimate
) -> float:
    """T_mj / max_j T_mj; 1 for a type that has left the cluster, or while nothing is known."""
    if name not in types:
        return 1.0
    rates = np.array([each.steps_per_s for each in estimate(spec, types)])
    return float(rates[types.index(name)] / rates.max()) if rates.max() > 0 else 1.0


def _prices(cluster: Cluster) -> dict[AcceleratorType, float]:
    by_type: dict[AcceleratorType, list[float]] = {}
    for worker in cluster.workers:
        by_type.setdefault(worker.accelerator_type, []).append(worker.price_usd_per_hour)
    return {name: sum(prices) / len(prices) for name, prices in by_type.items()}
