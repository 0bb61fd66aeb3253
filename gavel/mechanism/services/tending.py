"""Tends services: takes what their replicas say of themselves, makes replicas, lets them leave, and ends them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from gavel.mechanism.jobs import lifecycle
from gavel.mechanism.jobs.events import Dismissed, EventKind
from gavel.mechanism.services.decision import Acts, Replica, Wanted, advanced, decide, next_at_s, types_to_make
from gavel.mechanism.services.demand import next_look_s
from gavel.mechanism.services.following import demand_status
from gavel.mechanism.tick import Tick
from gavel.ports import JobEvent
from gavel.types import (
    AcceleratorType,
    GangState,
    Job,
    JobId,
    JobSpec,
    JobState,
    Reason,
    ReplicaSpec,
    ServiceSpec,
    ServiceStatus,
)
from gavel.types.copying import changed

NEEDED_NO_MORE = "Its service does not need the replica any more."
WITHOUT_SERVICE = "The service of the replica has ended."


def tend_services(tick: Tick) -> float:
    """Do what is due for all services; return when something will be due although nothing happens (+inf: never)."""
    if not tick.index.services and not tick.index.replicas:
        return inf
    replicas = _replicas(tick)
    of_service: dict[JobId, list[Replica]] = {job_id: [] for job_id in tick.index.services}
    for each in replicas:
        of_service.setdefault(_service_of(tick, each.id), []).append(each)
    return min((_tend(tick, job_id, there) for job_id, there in of_service.items()), default=inf)


def _tend(tick: Tick, service_id: JobId, replicas: Sequence[Replica]) -> float:
    """Tend one service, or what is left of one that has ended; return when something will be due."""
    job = tick.index.services.get(service_id)
    if job is None:
        return _dissolve(tick, replicas)
    status = replace(job.serving or ServiceStatus(), demand=demand_status(tick, job, replicas))
    template, wanted = _template(job, status)
    status = advanced(
        status,
        wanted,
        replicas,
        failed=_failed(tick, job, wanted.version),
        now_s=tick.now_s,
        rollout_s=_service(job).rollout_s,
    )
    acts = decide(replace(wanted, may_make=status.retry_at_s <= tick.now_s), replicas, tick.now_s)
    _carry_out(tick, acts, NEEDED_NO_MORE)
    types = types_to_make(wanted, replicas)[: acts.make]
    tick.made.extend(_replica_of(job, template, wanted.version, each) for each in types)
    _note(tick, job, status, template, replicas)
    due = (*next_at_s(wanted, replicas, status, _service(job).rollout_s), *_looks_s(job, status, tick.now_s))
    return min((at_s for at_s in due if at_s > tick.now_s), default=inf)


def _looks_s(job: Job, status: ServiceStatus, now_s: float) -> list[float]:
    """When the demand of a service may lead to another number although nothing happens."""
    demand = _service(job).demand
    return [] if demand is None or status.demand is None else [next_look_s(status.demand, demand, now_s)]


def _dissolve(tick: Tick, replicas: Sequence[Replica]) -> float:
    """Let the replicas of a service that has ended leave, each with the time for its requests."""
    none = Wanted(replicas=0, min_available=0, surge=0, version=0, drain_s=_drain_s(tick, replicas))
    _carry_out(tick, decide(none, replicas, tick.now_s), WITHOUT_SERVICE)
    due = next_at_s(none, replicas, ServiceStatus(), inf)
    return min((at_s for at_s in due if at_s > tick.now_s), default=inf)


# --- what there is ---------------------------------------------------------------------------------------------------


def _replicas(tick: Tick) -> list[Replica]:
    """The replicas that have not ended and are not being ended; what their gangs say is stored with their jobs."""
    running = [gang for gang in tick.seen.gangs if gang.state is GangState.RUNNING]
    endpoints = {(gang.job_id, gang.generation): gang.endpoint for gang in running}
    closing = {name for name, status in tick.nodes.items() if status.drain_by_s is not None}
    node_of = {worker.id: worker.node for worker in tick.seen.cluster.workers} if closing else {}
    nodes = {gang.job_id: {node_of.get(worker, "") for worker in gang.worker_ids} for gang in running if node_of}
    replicas = []
    for job in list(tick.index.replicas.values()):
        if job.over or job.cancel_requested:
            continue
        is_running = job.state is JobState.LEASED
        endpoint = endpoints.get((job.id, job.generation), "") if is_running else ""
        was_ready, leaving_at_s = job.was_ready or bool(endpoint), job.leaving_at_s
        if leaving_at_s is not None and leaving_at_s > tick.now_s:  # the clock has been set back since
            leaving_at_s = tick.now_s
        replicas.append(_replica(job, endpoint, leaving_at_s, must_go=bool(closing & nodes.get(job.id, set()))))
        if (endpoint, was_ready, leaving_at_s) != (job.endpoint, job.was_ready, job.leaving_at_s):
            tick.put(changed(job, endpoint=endpoint, was_ready=was_ready, leaving_at_s=leaving_at_s))
    return replicas


def _replica(job: Job, endpoint: str, leaving_at_s: float | None, *, must_go: bool) -> Replica:
    assert job.spec.replica is not None
    return Replica(
        id=job.id,
        version=job.spec.replica.version,
        is_running=job.state is JobState.LEASED,
        is_ready=bool(endpoint),
        was_ready=job.was_ready,
        must_go=must_go or job.pause_requested,
        leaving_at_s=leaving_at_s,
        made_at_s=job.submitted_at_s,
        accelerator_type=job.spec.replica.accelerator_type,
    )


def _failed(tick: Tick, job: Job, version: int) -> int:
    """How many replicas of the version have ended in this tick by themselves."""
    ended = [each for each in tick.changed.values() if each.state.is_terminal and each.spec.replica is not None]
    own = [each for each in ended if _part(each).service == job.id and _part(each).version == version]
    return sum(not each.over and not each.cancel_requested for each in own)


def _template(job: Job, status: ServiceStatus) -> tuple[JobSpec, Wanted]:
    """The specification that replicas are made from, and how many of them: of a refused version the one before."""
    service = _service(job)
    is_refused = status.refused == service.version and job.stable_spec is not None
    template = job.stable_spec if is_refused and job.stable_spec is not None else job.spec
    is_held = job.pause_requested or bool(job.waits_for)
    count = 0 if is_held else service.wanted_by(status)
    mix = status.demand.replicas if status.demand and not is_held else None
    wanted = Wanted(
        replicas=count,
        min_available=service.available_of(count),
        surge=service.surge,
        version=status.stable if is_refused else service.version,
        drain_s=service.drain_s,
        mix=mix or {},
    )
    return template, wanted


# --- what is done ----------------------------------------------------------------------------------------------------


def _carry_out(tick: Tick, acts: Acts, why: str) -> None:
    for job_id in acts.leave:
        job = tick.jobs[job_id]
        line = JobEvent(job_id=job_id, at_s=tick.now_s, kind="replica.leaving", message=why)
        tick.put(changed(job, leaving_at_s=tick.now_s), line)
    for job_id in acts.end:
        job = tick.jobs[job_id]
        if job.state is JobState.LEASED:
            tick.put(changed(job, over=why, leaving_at_s=job.leaving_at_s or tick.now_s))
            continue
        end = Dismissed(at_s=tick.now_s, kind=EventKind.FINISHED, reason=Reason.COMPLETED, message=why)
        tick.put(*lifecycle.step(changed(job, over=why), end))


def _replica_of(job: Job, template: JobSpec, version: int, accelerator_type: AcceleratorType) -> JobSpec:
    """The specification of a replica: the template's program, with the weight and priority that the service has now.

    It runs on the type only, "": on any that the service may run on.
    """
    service = template.service or _service(job)
    part = ReplicaSpec(service=job.id, version=version, serving=service.serving, drain_s=service.drain_s)
    return replace(
        template,
        weight=job.spec.weight,
        priority=job.spec.priority,
        service=None,
        replica=replace(part, accelerator_type=accelerator_type),
        accelerator_types=(accelerator_type,) if accelerator_type else template.accelerator_types,
        name=f"{job.spec.name or job.id}-v{version}"[:63],
        preemptible=False,
        notify=(),
        max_retries=0,  # it is replaced instead
        after=(),
        resubmit_of=None,
    )


def _note(tick: Tick, job: Job, status: ServiceStatus, template: JobSpec, replicas: Iterable[Replica]) -> None:
    """Store how far the service is, with the events of what is new."""
    before = job.serving or ServiceStatus()
    staying = [each for each in replicas if each.leaving_at_s is None]
    status = replace(status, replicas=len(staying), ready=sum(each.is_ready for each in staying))
    events = []
    if status.stable != before.stable:
        events.append(("service.stable", f"All replicas are of version {status.stable} and ready."))
    if status.refused != before.refused:
        events.append(("service.rolled_back", _why_refused(status)))
    lines = [JobEvent(job_id=job.id, at_s=tick.now_s, kind=kind, message=message) for kind, message in events]
    is_new = status.stable != before.stable
    stable = replace(template, service=_service(job)) if is_new else job.stable_spec
    if status != before:
        tick.put(changed(job, serving=status, stable_spec=stable), *lines)


def _why_refused(status: ServiceStatus) -> str:
    why = f"{status.failures} of its replicas failed" if status.failures else "it got no replica ready in time"
    return f"Version {status.refused} was given up, since {why}; version {status.stable} serves again."


def _drain_s(tick: Tick, replicas: Sequence[Replica]) -> float:
    return max((_part(tick.jobs[each.id]).drain_s for each in replicas), default=0.0)


def _service_of(tick: Tick, job_id: JobId) -> JobId:
    return _part(tick.jobs[job_id]).service


def _service(job: Job) -> ServiceSpec:
    assert job.spec.service is not None, "a job of the index's services"
    return job.spec.service


def _part(job: Job) -> ReplicaSpec:
    assert job.spec.replica is not None, "a job of the index's replicas"
    return job.spec.replica
