"""Says in sentences how far a service is, and why it has the replicas that it has."""

from collections.abc import Mapping

from gavel.types import Job, ServiceSpec, ServiceStatus
from gavel.types.services import DemandBound

BOUNDS: Mapping[DemandBound, str] = {
    "": "",
    "replicas_min": " There are no fewer by replicas_min.",
    "replicas_max": " That is the most that replicas_max lets it be.",
    "room": " That is the most that there is room for.",
    "down_after_s": " They become fewer once the lower demand has lasted down_after_s.",
    "readiness": " They become fewer once those that stay are ready.",
}


def serving_sentence(job: Job) -> str:
    """Return how far a service is."""
    assert job.spec.service is not None
    wanted, status = job.spec.service, job.serving or ServiceStatus()
    ready = f"{status.ready} of {wanted.wanted_by(status)} replicas are ready."
    if status.refused == wanted.version:
        return f"{ready} Version {wanted.version} was given up; version {status.stable} serves."
    is_rolling = 0 < status.stable != wanted.version
    rolling = f" Version {wanted.version} takes the place of version {status.stable}." if is_rolling else ""
    failing = f" {status.failures} replicas in a row have failed." if status.failures else ""
    return f"{ready}{rolling}{failing}{demand_sentence(wanted, status)}"


def demand_sentence(service: ServiceSpec, status: ServiceStatus) -> str:
    """Return why a service has the replicas that it has; "" before its demand is known."""
    demand, now = service.demand, status.demand
    if demand is None or now is None or now.level is None:
        return "" if demand is None else " No replica has told its requests yet."
    ahead = f", {now.forecast:.3g} expected within {now.lead_s:.0f} s" if now.forecast > now.level else ""
    asked = f" It is asked for {now.level:.3g} requests/s{ahead}; with headroom that needs {now.needed:.3g}"
    answers = demand.answered(now.replicas or {})
    return f"{asked}, and {_named(now.replicas or {})} answer {answers:.3g}.{BOUNDS[now.bound]}"


def _named(replicas: Mapping[str, int]) -> str:
    parts = ", ".join(f"{count} on {name}" for name, count in sorted(replicas.items()) if name)
    return f"{sum(replicas.values())} replicas" + (f" ({parts})" if parts else "")
