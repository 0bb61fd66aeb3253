"""When something is due: the decision of the next round, its start, the end of a pause or of a drain's window."""

from collections.abc import Sequence

import numpy as np

from gavel.config import Settings
from gavel.mechanism import nodes
from gavel.mechanism.tick import Tick
from gavel.types import Job, JobId, JobState, RoundPlan, RoundRecord

NEVER_S = float("inf")


def planning_instant_s(plan: RoundPlan, settings: Settings, decision_s: Sequence[float]) -> float:
    """When to decide the round after `plan`: ahead of its end by the lead, or twice the slowest decision of late.

    `decision_s`: what the last decisions took; the slowest is their 99th percentile.
    """
    slowest = float(np.quantile(decision_s, 0.99)) if decision_s else 0.0
    lead = max(settings.planning_lead_fraction * plan.duration_s, 2 * slowest)
    return plan.ends_at_s - min(lead, plan.duration_s)


def next_start_s(tick: Tick, jobs: Sequence[Job], settings: Settings, decision_s: Sequence[float]) -> float | None:
    """When the round to be decided now starts; None if none is due. `jobs`: those that a round may serve."""
    record = tick.records[-1] if tick.records else None
    if not jobs or not can_lease(tick) or (record and record.plan.starts_at_s > tick.now_s):
        return None
    if record is None or record.plan.ends_at_s <= tick.now_s:
        return tick.now_s
    plan, live = record.plan, {job.id for job in jobs}
    is_served = any(lease.job_id in live for lease in plan.leases) or _fits_nowhere(tick, record, live)
    if not is_served:
        return tick.now_s
    return plan.ends_at_s if tick.now_s >= planning_instant_s(plan, settings, decision_s) else None


def can_lease(tick: Tick) -> bool:
    """True if there are workers to plan for: some that are usable, or gangs that nobody may move."""
    if nodes.usable(tick.seen.cluster, tick.nodes).workers:
        return True
    return any(job.state is JobState.LEASED and not job.spec.preemptible for job in tick.jobs.values())


def _fits_nowhere(tick: Tick, record: RoundRecord, job_ids: set[JobId]) -> bool:
    """True if the round in force was decided for these jobs on these workers, and could lease nothing."""
    problem = record.problem
    capacity = dict(zip(problem.accelerator_types, problem.capacity_workers.tolist(), strict=True))
    is_same = capacity == nodes.usable(tick.seen.cluster, tick.nodes).capacity_workers()
    return not record.plan.leases and is_same and job_ids.issubset(problem.job_ids)


def next_planning_s(tick: Tick, jobs: Sequence[Job], settings: Settings, decision_s: Sequence[float]) -> float:
    """When a round starts or is to be decided, +inf: nothing can be planned until a job or a worker comes."""
    if not tick.rounds or not jobs:
        return NEVER_S
    newest = tick.rounds[-1]
    if newest.starts_at_s > tick.now_s:
        return newest.starts_at_s
    return max(tick.now_s, planning_instant_s(newest, settings, decision_s)) if can_lease(tick) else NEVER_S


def next_pause_end_s(tick: Tick, settings: Settings) -> float:
    """When a lost job may start again, or what is left on a draining node has to stop; +inf: neither."""
    retries = [job.retry_at_s for job in tick.jobs.values()]
    drains = [node.drain_by_s for node in tick.nodes.values() if node.drain_by_s is not None]
    due_s = (*retries, *(by_s - settings.lease_grace_s for by_s in drains))
    return min((at_s for at_s in due_s if at_s > tick.now_s), default=NEVER_S)
