"""What a commit charges to the tiers: accelerator hours weighted by relative speed, and money."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.problem import as_known, rates_of
from gavel.ports import ThroughputEstimator
from gavel.types import SECONDS_PER_HOUR, AcceleratorType, Cluster, Job, JobId, Usage, month_of, worker_s_of
from gavel.types.identity_memo import IdentityMemo

_feasibility_of = IdentityMemo[Feasibility](Feasibility, kept=1)


ROUNDING = 1e-12  # of all worker seconds of a job: a change of its size leaves so little


class _Held(NamedTuple):
    """Worker seconds that a job held of a type."""

    job: Job
    accelerator_type: AcceleratorType
    seconds: float


def charges(
    before: Mapping[JobId, Job],
    changed: Iterable[Job],
    *,
    cluster: Cluster,
    estimator: ThroughputEstimator,
    now_s: float,
) -> tuple[Usage, ...]:
    """Return the charges by tier for the worker seconds held since `before`, and the gangs lost since then.

    They are negative for what was accounted for too much, since nobody could see that a gang had ended.

    An hour on a job's fastest type counts as 1 accelerator hour, on another type as its relative speed. Money is
    charged at the mean price of the type's workers, whatever the speed. Jobs that share a worker pay half each.
    """
    jobs = list(changed)
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    held = [each for job in jobs for each in _newly_held(before.get(job.id), job)]
    prices = cluster.mean_price_usd_per_hour()
    for (job, name, seconds), speed in zip(held, _relative_speeds(held, cluster, estimator), strict=True):
        of_tier, hours = sums[job.spec.tier], seconds / SECONDS_PER_HOUR
        of_tier["worker_hours"] += hours
        of_tier["accelerator_hours"] += hours * speed
        of_tier["cost_usd"] += hours * prices.get(name, 0.0)
    lost = Counter(job.spec.tier for job in jobs if job.id in before and job.losses > before[job.id].losses)
    month, tiers = month_of(now_s), sorted(sums.keys() | lost.keys())
    return tuple(Usage(tier=tier, month=month, lost_gangs=lost[tier], **sums[tier]) for tier in tiers)


def _newly_held(before: Job | None, after: Job) -> Iterator[_Held]:
    """Worker seconds by type since `before`."""
    if before is not None and after.received_s is before.received_s:
        return
    until = worker_s_of(before) if before else {}
    for name, seconds in worker_s_of(after).items():
        held = seconds - until.get(name, 0.0)
        if abs(held) > ROUNDING * max(seconds, until.get(name, 0.0)):
            yield _Held(after, name, held)


def _relative_speeds(held: Sequence[_Held], cluster: Cluster, estimator: ThroughputEstimator) -> list[float]:
    """The relative speed of each job on its type, T_mj / max_j T_mj; 1 if the type has left or no rate is known."""
    if not held:
        return []
    column_of = {name: column for column, name in enumerate(cluster.accelerator_types)}
    specs = [as_known(each.job, estimator).spec for each in held]
    rates = rates_of(specs, _feasibility_of(cluster), estimator.estimate)
    fastest = rates.max(axis=1, initial=0.0)
    columns = [column_of.get(each.accelerator_type) for each in held]
    return [
        row[column] / most if column is not None and row[column] > 0 else 1.0
        for column, row, most in zip(columns, rates.tolist(), fastest.tolist(), strict=True)
    ]
