"""What a tier may use in a month, checked when jobs are submitted; what runs out meanwhile holds jobs, see `held`.

How many jobs users and tiers may have is checked by the store, in the transaction that writes them.
"""

from collections.abc import Mapping, Sequence

from api.deadlines import rates_of
from api.errors import invalid
from api.rules import Rules
from api.services import Services
from gavel.ports import ThroughputEstimate
from gavel.types import JobSpec

SECONDS_PER_HOUR = 3600.0


def check_hours(specs: Sequence[JobSpec], rules: Rules, services: Services) -> None:
    """Raises a 422 problem for a job that no month of its tier can pay for."""
    if any_metered(specs, rules):
        _check_hours(specs, rules, services.store.throughputs())


def any_metered(specs: Sequence[JobSpec], rules: Rules) -> bool:
    """Whether a tier of these jobs has so many accelerator hours a month."""
    return any(rules.tiers[spec.tier].accelerator_hours_per_month is not None for spec in specs)


def _check_hours(specs: Sequence[JobSpec], rules: Rules, table: Sequence[ThroughputEstimate]) -> None:
    """A job is refused when even on its fastest type it needs more hours than a whole month has."""
    for spec in specs:
        limit = rules.tiers[spec.tier].accelerator_hours_per_month
        needed = _hours(spec, table, rules.capacity)
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
