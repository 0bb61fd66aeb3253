"""From the nouns to what travels: pure functions, so that every route says a thing the same way."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from api.schemas import (
    AllocationRow,
    AllocationView,
    AuditList,
    AuditView,
    CertificateView,
    ClusterView,
    EventView,
    JobView,
    LeaseView,
    NodeView,
    RoundView,
    ShownState,
    ThroughputView,
    TierView,
    UserView,
    WorkerView,
)
from api.schemas.resources import ResourceView
from gavel.ports import AuditEntry, JobEvent, ThroughputEstimate
from gavel.types import (
    Allocation,
    ApplicationResource,
    Cluster,
    Job,
    JobId,
    JobState,
    Lease,
    RoundPlan,
    RoundRecord,
    Tier,
    User,
    WorkerId,
)

Leases = Mapping[JobId, Lease]


def leases_in_force(plans: Sequence[RoundPlan], jobs: Mapping[JobId, Job]) -> Leases:
    """The lease each of `jobs` holds now: of the newest plan that names its live token. `plans`: newest first."""
    leases: dict[JobId, Lease] = {}
    for plan in plans:
        for lease in plan.leases:
            job = jobs.get(lease.job_id)
            if job is not None and job.state is JobState.LEASED and job.token == lease.token:
                leases.setdefault(job.id, lease)
    return leases


def shown_state(job: Job, lease: Lease | None) -> ShownState:
    """What users see: the core state, the wish to cancel, the kind of lease, and why the last lease ended."""
    if job.state.is_terminal:
        return ShownState(job.state)
    if job.cancel_requested:
        return ShownState.CANCELLING
    if job.state is JobState.LEASED:
        return ShownState.PROFILING if lease is not None and lease.is_profiling else ShownState.RUNNING
    if job.pause_requested:
        return ShownState.PAUSED
    if job.attempt == 0 or job.reason == "Retrying":
        return ShownState.QUEUED
    return ShownState.LOST if job.reason == "Lost" else ShownState.PREEMPTED


def core_states(shown: ShownState) -> tuple[JobState, ...]:
    """The core states in which a job may be shown as `shown`."""
    match shown:
        case ShownState.QUEUED | ShownState.PREEMPTED | ShownState.LOST | ShownState.PAUSED:
            return (JobState.QUEUED,)
        case ShownState.RUNNING | ShownState.PROFILING:
            return (JobState.LEASED,)
        case ShownState.CANCELLING:
            return (JobState.QUEUED, JobState.LEASED)
        case _:
            return (JobState(shown),)


def finish_time_fairness(job: Job, now_s: float) -> float | None:
    """Themis' rho so far: time since submission over the isolated time of the steps reported; None before any count.

    Isolated time is kept for the steps of accepted checkpoints; a job that trains on is further than that.
    """
    if job.isolated_time_s <= 0:
        return None
    end_s = job.finished_at_s if job.finished_at_s is not None else now_s
    isolated_s = job.isolated_time_s * max(1.0, job.steps_reported / max(1, job.steps_done))
    rho = (end_s - job.submitted_at_s) / isolated_s
    return rho if math.isfinite(rho) else None


def job_view(job: Job, lease: Lease | None, now_s: float) -> JobView:
    """A job as its owner sees it."""
    spec, end_s = job.spec, job.finished_at_s
    return JobView(
        id=job.id,
        name=spec.name,
        kind=spec.kind,
        user=spec.user,
        tier=spec.tier,
        state=shown_state(job, lease),
        core_state=job.state.value,
        reason=job.reason,
        message=job.message,
        attempt=job.attempt,
        token=job.token,
        version=job.version,
        argv=list(spec.argv),
        labels=dict(spec.labels),
        steps_done=job.steps_done,
        steps_reported=job.steps_reported,
        total_steps=spec.total_steps,
        scale_factor=spec.scale_factor,
        weight=spec.weight,
        preemptible=spec.preemptible,
        deadline_at_s=spec.deadline_at_s,
        submitted_at_s=job.submitted_at_s,
        started_at_s=job.started_at_s,
        finished_at_s=end_s,
        jct_s=None if end_s is None else end_s - job.submitted_at_s,
        rho=finish_time_fairness(job, now_s),
        preemptions=job.preemptions,
        received_s=dict(job.received_s),
        rounds_received=dict(job.rounds_received),
        metrics={name: value for name, value in job.metrics.items() if math.isfinite(value)},
        exit_code=job.exit_code,
        log_tail=job.log_tail,
        accelerator_type=None if lease is None else lease.accelerator_type,
        worker_ids=[] if lease is None else list(lease.worker_ids),
        priority=spec.priority,
        max_retries=spec.max_retries,
        failures=job.failures,
        after=list(spec.after),
        waits_for=list(job.waits_for),
        pause_requested=job.pause_requested,
        array_id=spec.array_id,
        array_index=spec.array_index,
        deadline=None,
    )


def event_view(event: JobEvent) -> EventView:
    """One line of a job's story."""
    return EventView.model_validate(event, from_attributes=True)


def round_view(plan: RoundPlan, seen: Collection[JobId], solver_outcome: str | None = None) -> RoundView:
    """A round with its leases; jobs that are not in `seen` have no id."""
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
        token=lease.token,
        accelerator_type=lease.accelerator_type,
        worker_ids=list(lease.worker_ids),
        is_profiling=lease.is_profiling,
        starts_at_s=plan.starts_at_s if lease.starts_at_s is None else lease.starts_at_s,
        expires_at_s=lease.expires_at_s,
    )


def target_of_jobs(allocation: Allocation) -> dict[JobId, list[float]]:
    """Time fraction of each job on each type: the sum over the combinations it is in."""
    target: dict[JobId, list[float]] = {}
    for combination, fractions in zip(allocation.combinations, allocation.time_fraction.tolist(), strict=True):
        for job_id in combination:
            row = target.get(job_id)
            target[job_id] = fractions if row is None else [sum(pair) for pair in zip(row, fractions, strict=True)]
    return target


def received_of_job(job: Job, types: Sequence[str], now_s: float) -> list[float]:
    """Fraction of the time since submission that the job has held each type."""
    if not job.received_s:  # most, where many wait
        return [0.0] * len(types)
    age_s = max(now_s - job.submitted_at_s, 1e-9)
    return [min(1.0, job.received_s.get(each, 0.0) / age_s) for each in types]


def allocation_view(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> AllocationView:
    """The allocation of a round as a matrix, with a row for each of `jobs` that it knows."""
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


def throughput_view(estimate: ThroughputEstimate) -> ThroughputView:
    """One entry of the estimator's table."""
    return ThroughputView.model_validate(estimate, from_attributes=True)


def cluster_view(
    cluster: Cluster,
    leases: Leases,
    seen: Collection[JobId],
    resources: Iterable[ApplicationResource],
    now_s: float,
    notes: Iterable[str] = (),
) -> ClusterView:
    """Nodes, and workers with the jobs that hold them; those that are not in `seen` have no id."""
    holder: dict[WorkerId, JobId] = {w: lease.job_id for lease in leases.values() for w in lease.worker_ids}
    return ClusterView(
        nodes=[NodeView.model_validate(node, from_attributes=True) for node in cluster.nodes],
        workers=[
            WorkerView(
                id=w.id,
                node=w.node,
                accelerator_type=w.accelerator_type,
                price_usd_per_hour=w.price_usd_per_hour,
                shares_core=w.shares_core,
                busy=w.id in holder,
                job_id=holder[w.id] if holder.get(w.id) in seen else None,
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


def resource_view(found: ApplicationResource) -> ResourceView:
    """A name on a node."""
    said = found.resource
    return ResourceView(
        owner=said.owner,
        name=said.name,
        node=said.node,
        capacity=said.capacity,
        free=found.free,
        generation=said.generation,
        lease_expires_at_s=said.lease_expires_at_s,
    )


def tier_view(tier: Tier) -> TierView:
    """A tier's rules."""
    return TierView.model_validate(tier, from_attributes=True)


def audit_list(entries: Sequence[AuditEntry], limit: int) -> AuditList:
    """A page of the audit log; a full one has another behind it."""
    return AuditList(
        items=[
            AuditView(
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
    """A user and its tiers."""
    return UserView(name=user.name, tiers=list(user.tiers))
