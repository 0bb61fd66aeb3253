"""Checks what a submission says of an inference service, and how one may be changed."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from api.http.errors import invalid
from api.schemas import CheckOfService, JobPatch, JobSubmit, ServiceOfJob
from api.submission.sessions import LOCAL
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.services.spreading import domain_of
from gavel.types import Check, Job, JobSpec, ServiceSpec, Serving
from gavel.types.environment import reserved
from gavel.types.services import NODE

NOT_OF_A_SERVICE = ("total_steps", "deadline_at_s", "dump", "restore", "sizes", "global_batch")


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
        ),
        spread_by=body.spread_by or "",
        spread_hard=body.spread_hard,
        surge=body.surge,
        drain_s=body.drain_s,
        rollout_s=body.rollout_s,
    )


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
    }


def checked_fields(check: Check) -> dict[str, Any]:
    """Return the fields of a check."""
    return {name: getattr(check, name) for name in ("path", "interval_s", "timeout_s", "failures")}


def checked_change(job: Job, body: JobPatch) -> tuple[int | None, Mapping[str, Any] | None]:
    """Return the replicas and the changed fields of the program, None: no change. Raise a 422 problem."""
    service = job.spec.service
    for name in ("replicas", "new_version"):
        if service is None and getattr(body, name) is not None:
            raise invalid(name, f"job {job.id} is no service; only a service has it")
    if service is None:
        return None, None
    least, most = service.replicas_min, service.replicas_max
    if body.replicas is not None and not least <= body.replicas <= most:
        raise invalid("replicas", f"service {job.id} has {least} to {most} replicas; give one of these")
    return body.replicas, None if body.new_version is None else _program(job, body)


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
