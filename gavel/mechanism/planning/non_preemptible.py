"""Gangs that no plan moves: those of jobs that cannot be preempted, until they end or the drain of a node ends.

While the disk is nearly full these are all gangs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gavel.mechanism.cluster import nodes
from gavel.mechanism.cluster.feasibility import Workers, used_by
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.jobs.index import order_key
from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.mechanism.tick import Tick
from gavel.types import (
    EXCLUDED,
    NO_NEEDS,
    AcceleratorType,
    Cluster,
    GangState,
    Job,
    JobId,
    JobState,
    Lease,
    Needs,
    Reason,
    RoundPlan,
    Used,
    workers_held,
)


def staying(tick: Tick, parent: RoundPlan, *, starts_at_s: float, ends_at_s: float) -> tuple[Lease, ...]:
    """Return the leases that go on into the round [starts, ends) before anything is planned, on cordoned nodes too.

    A lease for profiling does not stay: a job is not tied to the type on which it was measured.
    """
    present = {worker.id for worker in tick.seen.cluster.workers}
    leases = []
    holding = [lease for lease in parent.leases if _holds_on(tick, lease) and present.issuperset(lease.worker_ids)]
    held_jobs = {lease.job_id for lease in holding}
    for lease in holding:
        expires_at_s = min(ends_at_s, nodes.ends_at_most_s(lease.worker_ids, tick.seen.cluster, tick.nodes))
        if expires_at_s > starts_at_s:
            index = parent.round_index + 1
            together = lease.combination if held_jobs.issuperset(lease.combination) else (lease.job_id,)
            kept = replace(lease, round_index=index, expires_at_s=expires_at_s, starts_at_s=None)
            leases.append(replace(kept, combination=together))
    return tuple(leases)


def of_tiers(tick: Tick, kept: Sequence[Lease]) -> list[tuple[str, AcceleratorType, float]]:
    """Return tier, type and number of the workers of each lease that stays."""
    tiers = [tick.jobs[lease.job_id].spec.tier for lease in kept]
    types = [lease.accelerator_type for lease in kept]
    return list(zip(tiers, types, workers_held(kept), strict=True))


def used_of_kept(held: Sequence[tuple[Workers, Needs]], others: Iterable[Needs], cluster: Cluster) -> dict[str, Used]:
    """Return what gangs that stay hold of each node; empty while neither they nor `others` need more than workers."""
    if all(needs == NO_NEEDS for _, needs in held) and all(needs == NO_NEEDS for needs in others):
        return {}
    return used_by(held, {worker.id: worker.node for worker in cluster.workers})


def _holds_on(tick: Tick, lease: Lease) -> bool:
    job = tick.jobs.get(lease.job_id)
    if job is None or not job.is_wanted or lease.is_profiling:
        return False
    if not tick.disk.low and (job.spec.preemptible or _has_spent_its_month(tick, job.id)):
        return False  # with little disk nothing is started, so nothing is moved either
    return job.state is JobState.LEASED and job.generation == lease.generation


def _has_spent_its_month(tick: Tick, job_id: JobId) -> bool:
    return job_id in tick.held and tick.held[job_id][0] is Reason.QUOTA_EXCEEDED


def limit(tick: Tick, layout: Layout) -> None:
    """Hold the waiting jobs that may not be preempted and for which there is no room; others get the types that have.

    Room is given in the order of service, first to those that run or are about to. One that waits counts on each type
    on which it might be started.
    """
    room = Room(tick.snapshot.tiers, tick.seen.cluster.capacity_workers())
    if not room.is_bounded or all(job.state is JobState.LEASED for job in tick.index.non_preemptible.values()):
        return
    holding = _holding(tick, layout)
    for job_id, types in holding.items():
        room.take(tick.jobs[job_id].spec.tier, tick.jobs[job_id].spec.scale_factor, types)
    served = [job for job in tick.wanting if not job.spec.preemptible and job.id not in holding]
    allowed = {job.id: _within(job, room, layout) for job in sorted(served, key=order_key)}
    refused = [job for job in served if allowed[job.id] is None]
    tick.held = {job.id: (Reason.NON_PREEMPTIBLE_LIMIT, room.why_not(job.spec)) for job in refused} | dict(tick.held)
    tick.wanting = [after for job in tick.wanting if (after := allowed.get(job.id, job)) is not None]


def _within(job: Job, room: Room, layout: Layout) -> Job | None:
    """The job with the types that have room for it, which is taken; None if none has."""
    spec, possible = job.spec, layout.feasibility.types_of(job.spec)
    types = room.types(spec.tier, spec.scale_factor, possible)
    if not types:
        return None if possible else job  # it fits nowhere, which is told otherwise
    room.take(spec.tier, spec.scale_factor, types)
    excluded = tuple(f"{EXCLUDED}{name}" for name in possible if name not in types)
    return replace(job, spec=replace(spec, accelerator_types=(*spec.accelerator_types, *excluded))) if excluded else job


def _holding(tick: Tick, layout: Layout) -> Mapping[JobId, set[AcceleratorType]]:
    """The types that jobs which may not be preempted hold, or will by a plan that is not carried out yet."""
    holding: dict[JobId, set[AcceleratorType]] = {}
    jobs = tick.index.non_preemptible
    for gang in tick.seen.gangs:
        if gang.job_id in jobs and gang.state is not GangState.ENDED:
            holding.setdefault(gang.job_id, set()).update(layout.type_of.get(each, "") for each in gang.worker_ids)
    for lease in (lease for plan in tick.round_plans for lease in plan.leases if lease.job_id in jobs):
        job = jobs[lease.job_id]
        is_to_come = lease.generation > job.generation or job.state is JobState.LEASED
        if is_to_come and lease.expires_at_s > tick.now_s:
            holding.setdefault(job.id, set()).add(lease.accelerator_type)
    return {job_id: types - {""} for job_id, types in holding.items()}


def without_ended(plan: RoundPlan, now_s: float) -> RoundPlan:
    """Return the plan without leases that ended early and may have made room for others (planning/backfill.py)."""
    if all(lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s for lease in plan.leases):
        return plan
    live = (lease for lease in plan.leases if lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s)
    return replace(plan, leases=tuple(live))
