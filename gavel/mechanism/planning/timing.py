"""When something is due: the decision of the next round, its start, the end of a pause or of a drain."""

from collections import deque
from collections.abc import Collection, Sequence

from gavel.config import Settings
from gavel.mechanism.jobs.index import is_schedulable
from gavel.mechanism.tick import Tick
from gavel.types import Job, JobId, JobState, RoundPlan, RoundRecord

NEVER_S = float("inf")
DECISIONS_KEPT = 100


class DecisionTimes:
    """How long the last decisions took."""

    def __init__(self) -> None:
        self._taken_s: deque[float] = deque(maxlen=DECISIONS_KEPT)

    def add(self, taken_s: float) -> None:
        """Add the seconds that a decision took; a negative time (the clock was set back) counts as 0."""
        self._taken_s.append(max(0.0, taken_s))

    @property
    def slowest_s(self) -> float:
        """Return the 99th percentile of the last decisions, in seconds; 0 before the first one."""
        return _percentile_99(self._taken_s) if self._taken_s else 0.0


def _percentile_99(values: Collection[float]) -> float:
    """Interpolated between the two nearest values, as numpy does, which takes ten times as long for 100 values."""
    ordered, place = sorted(values), 0.99 * (len(values) - 1)
    low, part = ordered[int(place)], place % 1.0
    return low + part * (ordered[min(int(place) + 1, len(ordered) - 1)] - low)


def planning_instant_s(plan: RoundPlan, settings: Settings, slowest_s: float) -> float:
    """Return when to decide the round after `plan`: before its end by the lead, or by twice `slowest_s` if longer.

    A round that is shorter than usual, as a reservation begins, has the lead of a usual one.
    """
    lead = max(settings.planning_lead_fraction * max(plan.duration_s, settings.round_duration_s), 2 * slowest_s)
    return plan.ends_at_s - min(lead, plan.duration_s)


def next_start_s(tick: Tick, jobs: Sequence[Job], settings: Settings, slowest_s: float) -> float | None:
    """Return when the round that is to be decided now starts; None if none is due. `jobs`: those a round may serve."""
    record = tick.round_records[-1] if tick.round_records else None
    if not jobs or not can_lease(tick) or (record and record.plan.starts_at_s > tick.now_s):
        return None
    if record is None or record.plan.ends_at_s <= tick.now_s:
        return tick.now_s
    plan = record.plan
    is_served = any(_serves(tick, lease.job_id) for lease in plan.leases)
    if not is_served and not _fits_nowhere(tick, record, {job.id for job in jobs}):
        return tick.now_s
    return plan.ends_at_s if tick.now_s >= planning_instant_s(plan, settings, slowest_s) else None


def can_lease(tick: Tick) -> bool:
    """Return True if there are workers to plan for: usable ones, or gangs that cannot be preempted."""
    if tick.usable.workers:
        return True
    return any(not job.spec.preemptible for job in tick.index.leased.values())


def _serves(tick: Tick, job_id: JobId) -> bool:
    """Return whether a round may serve the job, or its gang has the workers to the end of its lease all the same.

    So it is with a job that moves to another region, and with one whose tier has used up its month.
    """
    job = tick.jobs.get(job_id)
    if job is None or not is_schedulable(job, tick.now_s):
        return False
    return job_id not in tick.held or job.state is JobState.LEASED


def _fits_nowhere(tick: Tick, record: RoundRecord, job_ids: set[JobId]) -> bool:
    """True if the round in force was decided for these jobs on these workers, and could lease nothing."""
    problem = record.problem
    capacity = dict(zip(problem.accelerator_types, problem.capacity_workers.tolist(), strict=True))
    is_same = capacity == tick.usable.capacity_workers()
    return not record.plan.leases and is_same and job_ids.issubset(problem.job_ids)


def next_planning_s(tick: Tick, jobs: Sequence[Job], settings: Settings, slowest_s: float) -> float:
    """Return when a round starts or is decided next; +inf if nothing can be planned until a job or worker comes."""
    if not tick.round_plans or not jobs:
        return NEVER_S
    newest = tick.round_plans[-1]
    if newest.starts_at_s > tick.now_s:
        return newest.starts_at_s
    return max(tick.now_s, planning_instant_s(newest, settings, slowest_s)) if can_lease(tick) else NEVER_S


def next_pause_end_s(tick: Tick, settings: Settings) -> float:
    """Return when a lost job may start again, one that moves arrives, a reservation begins, or a drain ends.

    +inf if nothing of it comes.
    """
    conditional = tick.index.conditional.values()
    retries = [at_s for job in conditional for at_s in (job.retry_at_s, job.residence.arrives_at_s)]
    drains = [node.drain_by_s for node in tick.nodes.values() if node.drain_by_s is not None]
    reserved = [at_s for job in conditional if (at_s := job.spec.reserved_at_s) is not None]
    due_s = (*retries, *reserved, *(by_s - settings.lease_grace_s for by_s in drains))
    return min((at_s for at_s in due_s if at_s > tick.now_s), default=NEVER_S)
