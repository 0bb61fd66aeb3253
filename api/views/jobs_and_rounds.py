"""Turns the scheduler's types into views: pure functions that all routes share."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from api.schemas import (
    AllocationRow,
    AllocationView,
    AuditEntryView,
    AuditList,
    CertificateView,
    ClusterNodeView,
    ClusterView,
    EventView,
    JobView,
    LeaseView,
    PlanView,
    RoundView,
    ShownState,
    TierView,
    UserView,
    WorkerView,
)
from api.schemas.code import CodeView
from api.schemas.needs import ResidenceView
from api.schemas.resources import ResourceView
from api.views.inference import service_fields
from gavel.mechanism.explaining.fairness import deficit_s, finish_time_fairness, isolated_share
from gavel.mechanism.jobs.launches import plan_after, workers_after
from gavel.ports import AuditEntry, JobEvent
from gavel.types import (
    Allocation,
    ApplicationResource,
    Cluster,
    Job,
    JobId,
    JobSpec,
    JobState,
    Lease,
    Reason,
    RoundPlan,
    RoundRecord,
    Tier,
    User,
    WorkerId,
)

Leases = Mapping[JobId, Lease]


def leases_in_force(plans: Sequence[RoundPlan], jobs: Mapping[JobId, Job]) -> Leases:
    """Return the lease that each of `jobs` holds now: its generation's in the newest plan. `plans`: newest first."""
    leases: dict[JobId, Lease] = {}
    for plan in plans:
        for lease in plan.leases:
            job = jobs.get(lease.job_id)
            if job is not None and job.state is JobState.LEASED and job.generation == lease.generation:
                leases.setdefault(job.id, lease)
    return leases


def shown_state(job: Job, lease: Lease | None) -> ShownState:
    """Return the state that users see: the stored state, refined by a cancel request, the lease, and its last end."""
    if job.state.is_terminal:
        return ShownState(job.state)
    if job.cancel_requested:
        return ShownState.CANCELLING
    if job.state is JobState.LEASED:
        return ShownState.PROFILING if lease is not None and lease.is_profiling else ShownState.RUNNING
    if job.pause_requested:
        return ShownState.PAUSED
    if job.attempt == 0 or job.reason is Reason.RETRYING:
        return ShownState.QUEUED
    return ShownState.LOST if job.reason is Reason.LOST else ShownState.PREEMPTED


def core_states(shown: ShownState) -> tuple[JobState, ...]:
    """Return the stored states in which a job may be shown as `shown`."""
    match shown:
        case ShownState.QUEUED | ShownState.PREEMPTED | ShownState.LOST | ShownState.PAUSED:
            return (JobState.QUEUED,)
        case ShownState.RUNNING | ShownState.PROFILING:
            return (JobState.LEASED,)
        case ShownState.CANCELLING:
            return (JobState.QUEUED, JobState.LEASED)
        case _:
            return (JobState(shown),)


def _measured(job: Job) -> dict[str, Any]:
    """Return what its gangs have reported of start-ups and checkpoints."""
    names = ("startup_s", "restore_s", "checkpoint_s", "checkpoint_bytes", "checkpoint_every_s")
    last = job.checkpoints_written[-1] if job.checkpoints_written else None
    why = {"checkpoint_cost_s": last and last.cost_s, "time_to_loss_s": last and last.time_to_loss_s}
    return {name: getattr(job, name) for name in names} | why


def job_view(job: Job, lease: Lease | None, now_s: float) -> JobView:
    """Return a job as its owner sees it."""
    end_s = job.finished_at_s
    return JobView(
        **_submitted(job.spec),
        **service_fields(job),
        id=job.id,
        state=shown_state(job, lease),
        core_state=job.state.value,
        reason=job.reason,
        message=job.explanation,
        fix=job.reason.fix(job.id),
        attempt=job.attempt,
        generation=job.generation,
        version=job.version,
        steps_done=job.steps_done,
        steps_reported=job.steps_reported,
        total_steps=job.total_steps,
        submitted_at_s=job.submitted_at_s,
        started_at_s=job.started_at_s,
        session_ends_at_s=job.session_ends_at_s,
        finished_at_s=end_s,
        jct_s=None if end_s is None else end_s - job.submitted_at_s,
        rho=finish_time_fairness(job, now_s),
        deficit_s=deficit_s(job, now_s),
        isolated_share=isolated_share(job, now_s),
        preemptions=job.preemptions,
        received_s=dict(job.received_s),
        rounds_received=dict(job.rounds_received),
        no_progress=job.no_progress,
        **_measured(job),
        metrics={name: value for name, value in job.metrics.items() if math.isfinite(value)},
        phases_s=dict(job.phases_s),
        work_units_per_s=job.work.units / job.work.seconds if job.work.seconds > 0 else None,
        exit_code=job.exit_code,
        log_tail=job.log_tail,
        accelerator_type=None if lease is None else lease.accelerator_type,
        worker_ids=[] if lease is None else list(lease.worker_ids),
        failures=job.failures,
        waits_for=list(job.waits_for),
        pause_requested=job.pause_requested,
        residence=_residence_view(job, now_s),
        deadline=None,
    )


def _residence_view(job: Job, now_s: float) -> ResidenceView | None:
    own = job.residence
    if not own.region:
        return None
    return ResidenceView(
        region=own.region,
        why=own.why,
        moved_from=own.moved_from,
        arrives_at_s=own.arrives_at_s if own.arrives_at_s > now_s else None,
        moves=own.moves,
        egress_bytes=own.egress_bytes,
        egress_usd=own.egress_usd,
    )


def _submitted(spec: JobSpec) -> dict[str, Any]:
    """Return the fields of the view that were submitted."""
    return {
        "name": spec.name,
        "kind": spec.kind,
        "kind_from": spec.kind_from,
        "kind_args": list(spec.kind_args),
        "user": spec.user,
        "tier": spec.tier,
        "argv": list(spec.argv),
        "env": list(spec.env),
        "secrets": list(spec.secrets),
        "workdir": spec.workdir,
        "python": spec.python,
        "image": spec.image,
        "setup": spec.setup,
        "dump": spec.dump,
        "restore": spec.restore,
        "data": dict(spec.data),
        "code": None if spec.code is None else CodeView.model_validate(spec.code, from_attributes=True),
        "labels": dict(spec.labels),
        "submitted_steps": spec.total_steps,
        "scale_factor": spec.scale_factor,
        "sizes": list(spec.sizes),
        "global_batch": spec.global_batch or None,
        "max_global_batch": spec.max_global_batch or None,
        "plan": spec.plan or None,
        "plans": [PlanView.model_validate(plan, from_attributes=True) for plan in spec.plans],
        "weight": spec.weight,
        "preemptible": spec.preemptible,
        "mode": spec.mode,
        "longest_s": spec.longest_s,
        "idle_s": spec.idle_s,
        "reserved_at_s": spec.reserved_at_s,
        "reserved_type": spec.reserved_type,
        "accelerator_share": spec.accelerator_share,
        "cpu_cores": spec.cpu_cores,
        "memory_bytes": spec.memory_bytes,
        "accelerator_types": list(spec.accelerator_types),
        "accelerator_memory_bytes": spec.accelerator_memory_bytes,
        "node_labels": dict(spec.node_labels),
        "topology_label": spec.topology_label,
        "regions": list(spec.regions),
        "data_region": spec.data_region,
        "data_bytes": spec.data_bytes,
        "throughputs": dict(spec.throughput_steps_per_s),
        "deadline_at_s": spec.deadline_at_s,
        "priority": spec.priority,
        "max_retries": spec.max_retries,
        "after": list(spec.after),
        "array_id": spec.array_id,
        "array_index": spec.array_index,
        "notify": None if spec.notify is None else [each.value for each in spec.notify],
        "resubmit_of": spec.resubmit_of,
        "from_checkpoint": spec.from_checkpoint,
    }


def event_view(event: JobEvent) -> EventView:
    """Return one entry of a job's history."""
    return EventView(
        sequence=event.sequence,
        job_id=event.job_id,
        at_s=event.at_s,
        kind=event.kind,
        message=event.message,
        round_index=event.round_index,
        gang_size=workers_after(event.kind, event.message),
        plan=plan_after(event.kind, event.message),
    )


def round_view(plan: RoundPlan, seen: Collection[JobId], solver_outcome: str | None = None) -> RoundView:
    """Return a round with its leases. Jobs that are not in `seen` have no id."""
    return RoundView(
        round_index=plan.round_index,
        starts_at_s=plan.starts_at_s,
        duration_s=plan.duration_s,
        policy=plan.policy,
        solver_outcome=solver_outcome,
        leases=[_lease_view(lease, plan, lease.job_id in seen) for lease in plan.leases],
    )


def _lease_view(lease: Lease, plan: RoundPlan, is_seen: bool) -> LeaseView:
    return LeaseView(
        job_id=lease.job_id if is_seen else None,
        generation=lease.generation,
        accelerator_type=lease.accelerator_type,
        worker_ids=list(lease.worker_ids),
        is_profiling=lease.is_profiling,
        plan=lease.plan or None,
        starts_at_s=plan.starts_at_s if lease.starts_at_s is None else lease.starts_at_s,
        expires_at_s=lease.expires_at_s,
    )


def target_of_jobs(allocation: Allocation) -> dict[JobId, list[float]]:
    """Return the time fraction of each job on each type: the sum over the combinations with the job."""
    target: dict[JobId, list[float]] = {}
    for combination, fractions in zip(allocation.combinations, allocation.time_fraction.tolist(), strict=True):
        for job_id in combination:
            row = target.get(job_id)
            target[job_id] = fractions if row is None else [sum(pair) for pair in zip(row, fractions, strict=True)]
    return target


def received_of_job(job: Job, types: Sequence[str], now_s: float) -> list[float]:
    """Return the fraction of the time since submission that the job has held each type."""
    if not job.received_s:  # most jobs, if many wait
        return [0.0] * len(types)
    age_s = max(now_s - job.submitted_at_s, 1e-9)
    return [min(1.0, job.received_s.get(each, 0.0) / age_s) for each in types]


def allocation_view(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> AllocationView:
    """Return the allocation of a round as a matrix, with a row for each of `jobs` that is in it."""
    allocation = record.allocation
    types = list(allocation.accelerator_types)
    notes = dict(allocation.notes)
    capacity = dict(zip(types, record.problem.capacity_workers.tolist(), strict=True))
    rows = [
        _row(jobs[job_id], target, received_of_job(jobs[job_id], types, now_s), notes.get(job_id, ""))
        for job_id, target in (target_of_jobs(allocation) if jobs else {}).items()
        if job_id in jobs
    ]
    return AllocationView(
        round_index=record.plan.round_index,
        policy=record.plan.policy,
        solver=allocation.solver,
        solver_outcome=record.solver_outcome,
        solve_time_s=allocation.solve_time_s,
        is_fallback=allocation.is_fallback,
        certificate=CertificateView(
            primal_violation=allocation.certificate.primal_violation, dual_gap=allocation.certificate.dual_gap
        ),
        types=types,
        capacity=capacity,
        rows=rows,
        is_grouped=False,
        jobs=len(rows),
    )


def _row(job: Job, target: list[float], received: list[float], note: str) -> AllocationRow:
    return AllocationRow(
        job_id=job.id,
        name=job.spec.name,
        kind=job.spec.kind,
        user=job.spec.user,
        tier=job.spec.tier,
        target=target,
        received=received,
        note=note,
        jobs=1,
    )


def cluster_view(
    cluster: Cluster,
    leases: Leases,
    seen: Collection[JobId],
    resources: Iterable[ApplicationResource],
    now_s: float,
    notes: Iterable[str] = (),
) -> ClusterView:
    """Return nodes, and workers with the jobs that hold them. Jobs that are not in `seen` have no id."""
    holders: dict[WorkerId, list[JobId]] = defaultdict(list)
    for lease in leases.values():
        for worker in lease.worker_ids:
            holders[worker].append(lease.job_id)
    return ClusterView(
        nodes=[ClusterNodeView.model_validate(node, from_attributes=True) for node in cluster.nodes],
        workers=[
            WorkerView(
                id=w.id,
                node=w.node,
                accelerator_type=w.accelerator_type,
                price_usd_per_hour=w.price_usd_per_hour,
                shares_core=w.shares_core,
                memory_bytes=w.memory_bytes,
                busy=w.id in holders,
                job_ids=[each if each in seen else None for each in holders.get(w.id, ())],
            )
            for w in cluster.workers
        ],
        capacity=cluster.capacity_workers(),
        notes=[*notes],
        resources=[
            resource_view(each)
            for each in sorted(resources, key=lambda each: each.key)
            if each.resource.lease_expires_at_s > now_s
        ],
    )


def resource_view(stored: ApplicationResource) -> ResourceView:
    """Return an ephemeral resource on a node."""
    resource = stored.resource
    return ResourceView(
        owner=resource.owner,
        name=resource.name,
        node=resource.node,
        capacity=resource.capacity,
        free=stored.free,
        generation=resource.generation,
        lease_expires_at_s=resource.lease_expires_at_s,
    )


def tier_view(tier: Tier) -> TierView:
    """Return a tier's rules."""
    return TierView.model_validate(tier, from_attributes=True)


def audit_list(entries: Sequence[AuditEntry], limit: int) -> AuditList:
    """Return a page of the audit log. After a full page there may be another one."""
    return AuditList(
        items=[
            AuditEntryView(
                sequence=each.sequence,
                at_s=each.at_s,
                by=each.by,
                action=each.action,
                subject=each.subject,
                user=each.user,
                round_index=each.round_index,
                before=None if each.before is None else dict(each.before),
                after=dict(each.after),
            )
            for each in entries
        ],
        next_before=entries[-1].sequence if len(entries) == limit else None,
    )


def user_view(user: User) -> UserView:
    """Return a user and its tiers."""
    return UserView(name=user.name, tiers=list(user.tiers))
