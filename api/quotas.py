"""What users and tiers may have: checked when jobs are submitted; what runs out meanwhile holds jobs, see `held`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from api.deadlines import rates_of
from api.errors import invalid, problem
from api.services import Services
from gavel.ports import ThroughputEstimate
from gavel.types import JobSpec, Tier

SECONDS_PER_HOUR = 3600.0


def check_quotas(specs: Sequence[JobSpec], services: Services) -> None:
    """Raises a 429 problem when there are too many jobs, a 422 for one that no month of its tier can pay for."""
    tiers = {tier.name: tier for tier in services.store.tiers()}
    _check_counts(specs, tiers, services)
    if any(_is_metered(tiers[spec.tier]) for spec in specs):
        _check_hours(specs, tiers, services)
    services.unfinished.add(specs)


def _check_counts(specs: Sequence[JobSpec], tiers: Mapping[str, Tier], services: Services) -> None:
    """On a recent count; before anybody is refused, on an exact one."""
    now_s = services.clock.now_s()
    services.unfinished.count(services.store, now_s, exactly=False)
    if _too_many(specs, tiers, services) is not None:
        services.unfinished.count(services.store, now_s, exactly=True)
    refusal = _too_many(specs, tiers, services)
    if refusal is not None:
        raise problem(429, refusal)


def _too_many(specs: Sequence[JobSpec], tiers: Mapping[str, Tier], services: Services) -> str | None:
    limit, unfinished = services.settings.queued_jobs_per_user, services.unfinished.of_user(specs[0].user)
    if unfinished + len(specs) > limit:
        return (
            f"you have {unfinished} unfinished jobs and may have {limit}, so {len(specs)} more cannot come;"
            " wait for some, or cancel them"
        )
    for name, more in Counter(spec.tier for spec in specs).items():
        most, unfinished = tiers[name].max_jobs, services.unfinished.of_tier(name)
        if most is not None and unfinished + more > most:
            return (
                f"ExceedsMaxQuota: tier {name} has {unfinished} unfinished jobs and may have {most},"
                f" so {more} more cannot come; wait for some, use another tier, or ask an operator"
            )
    return None


def _is_metered(tier: Tier) -> bool:
    return tier.accelerator_hours_per_month is not None


def _check_hours(specs: Sequence[JobSpec], tiers: Mapping[str, Tier], services: Services) -> None:
    """A job is refused when even on its fastest type it needs more hours than a whole month has."""
    table, capacity = services.store.throughputs(), services.store.cluster().capacity_workers()
    for spec in specs:
        limit, needed = tiers[spec.tier].accelerator_hours_per_month, _hours(spec, table, capacity)
        if limit is not None and needed is not None and needed > limit:
            raise invalid(
                "total_steps",
                f"ExceedsMaxQuota: {spec.total_steps} steps need {needed:.2f} accelerator hours on the fastest type,"
                f" tier {spec.tier} has {limit:g} a month; take fewer steps, or another tier",
            )


def _hours(spec: JobSpec, table: Sequence[ThroughputEstimate], capacity: Mapping[str, int]) -> float | None:
    """Accelerator hours of the whole job at its fastest type's speed; None while nobody knows the speed."""
    rates = rates_of(spec, table, capacity)
    if not rates:
        return None
    return spec.total_steps / max(rates.values()) * spec.scale_factor / SECONDS_PER_HOUR
