"""A tier's monthly limits, checked at submission. A limit that is reached later holds jobs back, see `held`.

The numbers of jobs that users and tiers may have are checked by the store, in the transaction that writes the jobs.
"""

from collections.abc import Sequence

from api.http.errors import invalid
from api.rules import Rules
from api.services import Services
from gavel.mechanism.jobs.admission_holds import month_too_short
from gavel.mechanism.planning.own_rates import own_estimates, reliable_rates
from gavel.ports import ThroughputEstimator
from gavel.types import Job, JobSpec, Reason


def check_hours(specs: Sequence[JobSpec], rules: Rules, services: Services) -> None:
    """Raise a 422 problem for a job that needs more accelerator hours than its tier has in a whole month."""
    if any_metered(specs, rules):
        _check_hours(specs, rules, services.estimator())


def any_metered(specs: Sequence[JobSpec], rules: Rules) -> bool:
    """Return whether the tier of any of these jobs has a monthly limit of accelerator hours."""
    return any(rules.tiers[spec.tier].accelerator_hours_per_month is not None for spec in specs)


def _check_hours(specs: Sequence[JobSpec], rules: Rules, estimator: ThroughputEstimator) -> None:
    """Raise a 422 problem if even on its fastest type the job needs more hours than a whole month has."""
    for spec in specs:
        rates = reliable_rates(own_estimates(Job(id="", spec=spec), estimator, rules.feasibility.types_of(spec)))
        if not rates or spec.total_steps is None:
            continue  # its speed is neither claimed nor measured yet, or nobody knows how long it is
        message = month_too_short(rules.tiers[spec.tier], spec.total_steps, spec.scale_factor, max(rates.values()))
        if message:
            reason = Reason.EXCEEDS_MAX_QUOTA
            raise invalid("total_steps", f"{reason}: {message} {reason.fix()}")
