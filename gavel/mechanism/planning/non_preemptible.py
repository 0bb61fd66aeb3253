"""Gangs that no plan moves: those of jobs that cannot be preempted, until they end or the drain of a node ends.

While the disk is nearly full these are all gangs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gavel.mechanism.cluster import nodes
from gavel.mechanism.cluster.feasibility import Workers, used_by
from gavel.mechanism.tick import Tick
from gavel.types import NO_NEEDS, Cluster, JobState, Lease, Needs, RoundPlan, Used


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


def used_of_kept(held: Sequence[tuple[Workers, Needs]], others: Iterable[Needs], cluster: Cluster) -> dict[str, Used]:
    """Return what gangs that stay hold of each node; empty while neither they nor `others` need more than workers."""
    if all(needs == NO_NEEDS for _, needs in held) and all(needs == NO_NEEDS for needs in others):
        return {}
    return used_by(held, {worker.id: worker.node for worker in cluster.workers})


def _holds_on(tick: Tick, lease: Lease) -> bool:
    job = tick.jobs.get(lease.job_id)
    if job is None or not job.is_wanted or lease.is_profiling:
        return False
    if job.spec.preemptible and not tick.disk.low:  # with little disk nothing is started, so nothing is moved either
        return False
    return job.state is JobState.LEASED and job.generation == lease.generation


def without_ended(plan: RoundPlan, now_s: float) -> RoundPlan:
    """Return the plan without leases that ended early and may have made room for others (planning/backfill.py)."""
    if all(lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s for lease in plan.leases):
        return plan
    live = (lease for lease in plan.leases if lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s)
    return replace(plan, leases=tuple(live))
