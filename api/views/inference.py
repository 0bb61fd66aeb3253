"""Turns services and their replicas into views."""

from collections.abc import Iterable
from typing import Any

from api.schemas import CheckView, DemandView, EndpointList, EndpointView, ServiceView, TargetGroup
from gavel.types import Check, DemandStatus, Job, JobState, ServiceSpec, ServiceStatus


def service_fields(job: Job) -> dict[str, Any]:
    """Return the fields of a job's view that are of its service, or of the replica that it is."""
    replica = job.spec.replica
    return {
        "service": None if job.spec.service is None else service_view(job),
        "replica_of": replica and replica.service,
        "replica_version": replica and replica.version,
        "endpoint": job.endpoint if is_endpoint(job) else "",
    }


def is_endpoint(job: Job) -> bool:
    """Return True for a replica to which requests may be sent: it runs, is ready, and does not leave."""
    return bool(job.endpoint) and job.leaving_at_s is None and job.state is JobState.LEASED and job.is_wanted


def service_view(job: Job) -> ServiceView:
    """Return a service as its owner sees it."""
    service, status = job.spec.service, job.serving or ServiceStatus()
    assert service is not None
    liveness = service.serving.liveness
    return ServiceView(
        port=service.serving.port,
        readiness=_check(service.serving.readiness),
        liveness=None if liveness is None else _check(liveness),
        replicas=service.wanted_by(status),
        replicas_min=service.replicas_min,
        replicas_max=service.replicas_max,
        min_available=service.available_of(service.wanted_by(status)),
        spread_by=service.spread_by,
        spread_hard=service.spread_hard,
        surge=service.surge,
        drain_s=service.drain_s,
        rollout_s=service.rollout_s,
        version=service.version,
        stable_version=status.stable,
        refused_version=status.refused,
        replicas_now=status.replicas,
        ready=status.ready,
        demand=_demand(service, status.demand or DemandStatus()),
    )


def _demand(service: ServiceSpec, status: DemandStatus) -> DemandView | None:
    demand, metrics, stated = service.demand, service.serving.metrics, service.stated_demand
    if demand is None or stated is None:
        return None
    return DemandView(
        stated=stated,
        rates=dict(demand.rates),
        headroom=demand.headroom,
        down_after_s=demand.down_after_s,
        metrics=metrics.path if metrics else "",
        requests_metric=metrics.requests if metrics else "",
        queue_metric=metrics.queue if metrics else "",
        now=status.level,
        forecast=None if status.level is None else status.forecast,
        lead_s=status.lead_s,
        needed=status.needed,
        replicas=None if status.replicas is None else dict(status.replicas),
        answered=demand.answered(status.replicas or {}),
        bound=status.bound,
    )


def _check(check: Check) -> CheckView:
    return CheckView.model_validate(check, from_attributes=True)


def endpoint_list(service: Job, jobs: Iterable[Job]) -> EndpointList:
    """Return the endpoints of a service among the unfinished jobs, oldest replica first."""
    mine = [job for job in jobs if job.spec.replica is not None and job.spec.replica.service == service.id]
    ready = sorted((job for job in mine if is_endpoint(job)), key=lambda job: job.id)
    return EndpointList(
        items=[
            EndpointView(job_id=job.id, address=job.endpoint, version=job.spec.replica.version)
            for job in ready
            if job.spec.replica is not None
        ]
    )


def target_groups(service: Job, endpoints: EndpointList) -> list[TargetGroup]:
    """Return endpoints in the form of Prometheus' HTTP service discovery, each with labels of its replica."""
    name = service.spec.name or service.id
    return [
        TargetGroup(
            targets=[each.address],
            labels={
                "__meta_gavel_service": service.id,
                "__meta_gavel_service_name": name,
                "__meta_gavel_replica": each.job_id,
                "__meta_gavel_version": str(each.version),
            },
        )
        for each in endpoints.items
    ]
