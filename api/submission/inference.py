"""Checks what a submission says of an inference service, and how one may be changed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from api.http.errors import invalid
from api.schemas import CheckOfService, JobPatch, JobSubmit, ServiceOfJob
from api.schemas.inference import ServicePatch
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.services.spreading import domain_of
from gavel.ports import JobEdit
from gavel.types import Check, Cluster, DemandSpec, Job, JobSpec, Metrics, ServiceSpec, Serving
from gavel.types.environment import reserved
from gavel.types.services import ANY_TYPE, MEASURED, NODE

HEADROOM, DOWN_AFTER_S = (ServiceOfJob.model_fields[name].default for name in ("headroom", "down_after_s"))
NOT_OF_A_SERVICE = (
    *("total_steps", "deadline_at_s", "dump", "restore", "sizes", "global_batch", "max_global_batch", "plans"),
)
NUMBERS = ("replicas", "replicas_min", "replicas_max", "demand", "headroom")  # of a change, as they are stored
LOCAL = "local"


def check_service(body: JobSubmit, backend: str) -> None:
    """Raise a 422 problem for a service without port and check, and for what does not go together."""
    if (body.mode == "service") != (body.service is not None):
        wanted = "a service needs its port and a readiness check; add service: {port: 0, readiness: {path: /ready}}"
        raise invalid("service", wanted if body.service is None else "only a service has it; add mode: service")
    if body.service is None:
        return
    for name in NOT_OF_A_SERVICE:
        if getattr(body, name) not in (None, []):
            raise invalid(name, "a service has no end, no steps and one size; leave it out, or submit a batch job")
    if body.service.spread_hard and body.service.spread_by is None:
        raise invalid("service.spread_by", "say by what replicas must be apart: node, or a label of nodes")
    if body.service.port and (backend == LOCAL or not body.service.spread_hard):
        one = "the replicas share one machine" if backend == LOCAL else "two replicas could meet on one node"
        raise invalid("service.port", f"{one}; give 0 for a free port, which GAVEL_REPLICA_PORT names")


def check_rates(spec: JobSpec, feasibility: Feasibility) -> None:
    """Raise a 422 problem for the rate on an accelerator type that no replica can have."""
    if spec.service is None or spec.service.demand is None or not spec.service.demand.is_by_type:
        return
    possible = feasibility.types_of(spec)
    if wrong := [name for name in spec.service.demand.rates if name not in possible]:
        there = f"a replica can have {', '.join(possible)}" if possible else "no type can have a replica"
        raise invalid("service.rate", f"{wrong[0]} is no accelerator type that a replica may have; {there}")


def check_domains(spec: JobSpec, feasibility: Feasibility) -> None:
    """Raise a 422 problem for more replicas than could ever be apart as they must be, or as can be replaced there."""
    service = spec.service
    if service is None or not service.spread_hard:
        return
    count = len(_places(spec, service, feasibility))
    if service.replicas_max > count:
        what = "nodes" if service.spread_by == NODE else f"values of the label {service.spread_by}"
        message = f"{service.replicas_max} can never be apart: the cluster has {count} {what} that may have a replica"
        raise invalid("service.replicas_max", f"{message}; ask for at most {count}, or leave spread_hard out")
    if service.replicas >= count and service.min_available >= service.replicas:
        message = f"with a replica in each of {count} places none could ever be replaced while all have to be ready"
        raise invalid("service.min_available", f"{message}; give at most {count - 1}, or leave spread_hard out")


def _places(spec: JobSpec, service: ServiceSpec, feasibility: Feasibility) -> set[str]:
    """The places that hold a whole replica on one accelerator type, were nobody else there."""
    cluster = feasibility.cluster
    place_of = {node.name: domain_of(node, service) for node in cluster.nodes if spec.needs.allows_node(node)}
    there = (each for each in cluster.workers if place_of.get(each.node) and spec.needs.allows_worker(each))
    workers = Counter((place_of[each.node], each.accelerator_type) for each in there)
    return {place for (place, _), count in workers.items() if count >= spec.scale_factor}


def service_of(body: ServiceOfJob | None) -> ServiceSpec | None:
    """Return the service that a submission asks for; None for another job."""
    if body is None:
        return None
    return ServiceSpec(
        replicas=body.replicas,
        replicas_min=body.least,
        replicas_max=body.most,
        min_available=body.available,
        serving=Serving(
            port=body.port,
            readiness=_check(body.readiness),
            liveness=None if body.liveness is None else _check(body.liveness),
            metrics=_metrics(body),
        ),
        spread_by=body.spread_by or "",
        spread_hard=body.spread_hard,
        surge=body.surge,
        drain_s=body.drain_s,
        rollout_s=body.rollout_s,
        demand=_demand(body),
    )


def _demand(body: ServiceOfJob) -> DemandSpec | None:
    if body.demand is None or body.rate is None:
        return None
    return DemandSpec(
        rates=_rates(body.rate),
        stated=None if body.demand == MEASURED else float(body.demand),
        headroom=body.headroom,
        down_after_s=body.down_after_s,
    )


def _rates(stated: float | dict[str, float]) -> dict[str, float]:
    return stated if isinstance(stated, dict) else {ANY_TYPE: stated}


def _metrics(body: ServiceOfJob) -> Metrics | None:
    if body.metrics is None or body.requests_metric is None:
        return None
    return Metrics(path=body.metrics, requests=body.requests_metric, queue=body.queue_metric or "")


def _check(body: CheckOfService) -> Check:
    return Check(path=body.path, interval_s=body.interval_s, timeout_s=body.timeout_s, failures=body.failures)


def stated_service(service: ServiceSpec | None) -> dict[str, Any] | None:
    """Return the part of the submission that makes this service, with as many replicas as it has now."""
    if service is None:
        return None
    parts = (service.serving.readiness, service.serving.liveness)
    readiness, liveness = (None if each is None else checked_fields(each) for each in parts)
    return {
        "port": service.serving.port,
        "readiness": readiness,
        "liveness": liveness,
        "replicas": service.replicas,
        "replicas_min": service.replicas_min,
        "replicas_max": service.replicas_max,
        "min_available": service.available_of(service.replicas),
        "spread_by": service.spread_by or None,
        "spread_hard": service.spread_hard,
        "surge": service.surge,
        "drain_s": service.drain_s,
        "rollout_s": service.rollout_s,
        **_stated_demand(service),
    }


def _stated_demand(service: ServiceSpec) -> dict[str, Any]:
    demand, metrics = service.demand, service.serving.metrics
    return {
        "demand": service.stated_demand,
        "rate": demand and demand.stated_rate,
        "headroom": HEADROOM if demand is None else demand.headroom,
        "down_after_s": DOWN_AFTER_S if demand is None else demand.down_after_s,
        "metrics": metrics and metrics.path,
        "requests_metric": metrics and metrics.requests,
        "queue_metric": (metrics and metrics.queue) or None,
    }


def checked_fields(check: Check) -> dict[str, Any]:
    """Return the fields of a check."""
    return {name: getattr(check, name) for name in ("path", "interval_s", "timeout_s", "failures")}


def checked_change(job: Job, body: JobPatch) -> dict[str, Any]:
    """Return what is to change of a service, as the fields of a JobEdit. Raise a 422 problem for what may not."""
    service = job.spec.service
    for name in ServicePatch.model_fields:
        if service is None and getattr(body, name) is not None:
            raise invalid(name, f"job {job.id} is no service; only a service has it")
    if service is None:
        return {}
    _check_number(job.id, service, body)
    program = None if body.new_version is None else _program(job, body)
    numbers = {name: getattr(body, name) for name in NUMBERS}
    return numbers | {"rates": None if body.rate is None else _rates(body.rate), "program": program}


def check_places(job: Job, change: JobEdit, cluster: Callable[[], Cluster]) -> None:
    """Raise a 422 problem for rates on types, or more replicas, that the service of the job could never have."""
    if job.spec.service is None or (change.rates, change.replicas_max) == (None, None):
        return
    spec, feasibility = replace(job.spec, service=change.service_after(job.spec.service)), Feasibility(cluster())
    check_domains(spec, feasibility)
    check_rates(spec, feasibility)


def _check_number(job_id: str, service: ServiceSpec, body: JobPatch) -> None:
    if body.replicas is not None and service.demand is not None:
        raise invalid("replicas", f"those of service {job_id} follow its demand; change that")
    for name in ("demand", "rate", "headroom"):
        if service.demand is None and getattr(body, name) is not None:
            raise invalid(name, f"service {job_id} has no rate; submit another one with demand and rate")
    if body.demand == MEASURED and service.serving.metrics is None:
        raise invalid("demand", f"service {job_id} names no metrics; submit another one that does")


def _program(job: Job, body: JobPatch) -> dict[str, Any]:
    version = body.new_version
    assert version is not None
    for name in version.env or {}:
        if why := reserved(name):
            raise invalid(f"new_version.env.{name}", why)
    if version.image and not job.spec.image:
        raise invalid("new_version.image", "the service runs in no image; submit another service for one that does")
    stated = version.model_dump(exclude_none=True)
    return stated | ({"argv": tuple(version.argv)} if version.argv else {})
