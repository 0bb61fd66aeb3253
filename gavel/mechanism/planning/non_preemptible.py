"""Gangs that no plan moves: those of jobs that cannot be preempted, until they end or the drain of a node ends.

While the disk is nearly full these are all gangs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gavel.mechanism.cluster import nodes
from gavel.mechanism.cluster.feasibility import Workers, used_by
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.jobs.index import order_key
from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.mechanism.jobs.reservations import (
    Calendar,
    Claim,
    claim_of,
    has_reservation,
    held_types,
    is_due,
    outlasted,
    sharing,
)
from gavel.mechanism.planning.reserved_types import types_for
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
    paired = {(lease.job_id, lease.combination) for lease in holding}  # a partner that started again is elsewhere
    for lease in holding:
        expires_at_s = _until_s(tick, lease, ends_at_s)
        if expires_at_s > starts_at_s:
            index = parent.round_index + 1
            is_pair = all((each, lease.combination) in paired for each in lease.combination)
            together = lease.combination if is_pair else (lease.job_id,)
            kept = replace(lease, round_index=index, expires_at_s=expires_at_s, starts_at_s=None)
            leases.append(replace(kept, combination=together))
    return tuple(leases)


def _until_s(tick: Tick, lease: Lease, ends_at_s: float) -> float:
    """Until when a gang stays in a round that ends then: no longer than the window of a drain of its nodes."""
    return min(ends_at_s, nodes.ends_at_most_s(lease.worker_ids, tick.seen.cluster, tick.nodes))


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


def limit(tick: Tick, layout: Layout, *, round_duration_s: float) -> None:
    """Hold the waiting jobs that may not be preempted and for which there is no room; others get the types that have.

    Room is given in the order of service, first to those that run, are about to, or are reserved. One that waits
    counts on each type on which it might be started, and gets none on which it might still be when a reservation
    begins that needs its workers.
    """
    jobs = tick.index.non_preemptible.values()
    reserved = [job for job in jobs if has_reservation(job, tick.now_s) and job.is_wanted]
    room = _NowAndLater(tick, is_reserved=bool(reserved), round_duration_s=round_duration_s)
    if not room.is_bounded or all(job.state is JobState.LEASED for job in jobs):
        return
    holding = _holding(tick, layout)
    pairs = sharing(tick.round_plans, holding.keys())
    left_out = outlasted(pairs, tick.jobs)
    for job_id, types in holding.items():
        room.hold(tick.jobs[job_id], types, is_shared=job_id in pairs, is_claimed=job_id not in left_out)
    for job in (each for each in reserved if each.id not in holding):
        room.reserve(job)
    given = holding.keys() | {job.id for job in reserved}
    late = [job for job in tick.wanting if job.id in given and job.id not in holding]
    served = [job for job in tick.wanting if not job.spec.preemptible and job.id not in given]
    allowed = {job.id: _late(tick, job, holding, layout, round_duration_s) for job in late}
    allowed |= {job.id: _within(job, room, layout) for job in sorted(served, key=order_key)}
    refused = {job.id: room.why_not(job, layout) for job in served if allowed[job.id] is None}
    tick.held = {name: (Reason.NON_PREEMPTIBLE_LIMIT, why) for name, why in refused.items()} | dict(tick.held)
    tick.wanting = [after for job in tick.wanting if (after := allowed.get(job.id, job)) is not None]


class _NowAndLater:
    """What is left for gangs that may not be preempted: now by the limits of tiers, later beside the reservations."""

    def __init__(self, tick: Tick, *, is_reserved: bool, round_duration_s: float) -> None:
        tiers, capacity = tick.snapshot.tiers, tick.seen.cluster.capacity_workers()
        self._now, self._later = Room(tiers, capacity), Calendar(tiers, capacity)
        self._now_s, self._round_duration_s = tick.now_s, round_duration_s
        self._is_limited, self._is_reserved = self._now.is_bounded, is_reserved

    @property
    def is_bounded(self) -> bool:
        return self._is_limited or self._is_reserved

    def take(self, job: Job, types: Collection[AcceleratorType]) -> None:
        """Count a gang that may start on each of these types."""
        self.hold(job, types, is_shared=False, is_claimed=True)

    def hold(self, job: Job, types: Collection[AcceleratorType], *, is_shared: bool, is_claimed: bool) -> None:
        """Count a gang that holds workers: half of those that it shares; later only where it has the claim on them."""
        self._now.take(job.spec.tier, job.spec.scale_factor / (2 if is_shared else 1), types)
        if is_claimed:
            self._later.add(self._claim(job, types))

    def reserve(self, job: Job) -> None:
        """Count a reservation; one that has begun holds its workers now."""
        types = (job.spec.reserved_type,)
        if is_due(job, self._now_s):
            self._now.take(job.spec.tier, job.spec.scale_factor, types)
        self._later.add(self._claim(job, types, is_reserved=True))

    def types(self, job: Job, possible: Sequence[AcceleratorType]) -> list[AcceleratorType]:
        """Return those of the types on which the gang of a job that waits may stay."""
        left = list(possible)
        if self._is_limited:
            left = self._now.types(job.spec.tier, job.spec.scale_factor, left)
        return self._later.types_later(self._claim(job, left)) if self._is_reserved else left

    def why_not(self, job: Job, layout: Layout) -> str:
        """Return the sentence for a job that `types` leaves none."""
        spec, possible = job.spec, layout.feasibility.types_of(job.spec)
        if self._is_limited and not self._now.types(spec.tier, spec.scale_factor, possible):
            return self._now.why_not(spec.tier, spec.scale_factor)
        return f"It could still run when a reservation begins. {self._later.why_not(self._claim(job, possible))}"

    def _claim(self, job: Job, types: Collection[AcceleratorType], *, is_reserved: bool = False) -> Claim:
        return claim_of(job, types, self._now_s, round_duration_s=self._round_duration_s, is_reserved=is_reserved)


def _within(job: Job, room: _NowAndLater, layout: Layout) -> Job | None:
    """The job with the types that have room for it, which is taken; None if none has."""
    possible = layout.feasibility.types_of(job.spec)
    types = room.types(job, possible)
    if not types:
        return None if possible else job  # it fits nowhere, which is told otherwise
    room.take(job, types)
    return _only_on(job, types, possible)


def _late(
    tick: Tick, job: Job, holding: Mapping[JobId, set[AcceleratorType]], layout: Layout, round_duration_s: float
) -> Job | None:
    """A session whose reservation has begun, with the types that it may have instead; None if there are none."""
    types = types_for(tick, job, holding, round_duration_s=round_duration_s)
    possible = layout.feasibility.types_of(job.spec)
    return _only_on(job, types, possible) if not set(types).isdisjoint(possible) else None


def _only_on(job: Job, types: Collection[AcceleratorType], possible: Sequence[AcceleratorType]) -> Job:
    """The job without those of its possible types that are not among these."""
    spec, excluded = job.spec, tuple(f"{EXCLUDED}{name}" for name in possible if name not in types)
    return replace(job, spec=replace(spec, accelerator_types=(*spec.accelerator_types, *excluded))) if excluded else job


def _holding(tick: Tick, layout: Layout) -> Mapping[JobId, set[AcceleratorType]]:
    """The types that jobs which may not be preempted hold, or will by a plan that is not carried out yet."""
    holding: dict[JobId, set[AcceleratorType]] = {}
    jobs = tick.index.non_preemptible
    for gang in tick.seen.gangs:
        if gang.job_id in jobs and gang.state is not GangState.ENDED:
            holding.setdefault(gang.job_id, set()).update(layout.type_of.get(each, "") for each in gang.worker_ids)
    for job_id, types in held_types(tick.round_plans, tick.now_s, jobs).items():
        holding.setdefault(job_id, set()).update(types)
    return {job_id: types - {""} for job_id, types in holding.items()}


def restored(tick: Tick) -> RoundPlan | None:
    """Return a plan in which gangs have their workers again, since the drain that ended their leases was taken back.

    It is the plan in force or the one ahead, as it is stored; None if there is nothing to restore in either. Who has
    got the workers meanwhile keeps them.
    """
    if not tick.index.non_preemptible:
        return None
    plans = [plan for plan in tick.round_plans if plan.ends_at_s > tick.now_s and not _is_new(tick, plan)]
    before = {plan.round_index: plan for plan in plans}
    pairs = ((plan, _continued(tick, _restored(tick, plan), before.get(plan.parent_round_index))) for plan in plans)
    return next((after for plan, after in pairs if after is not plan), None)


def _is_new(tick: Tick, plan: RoundPlan) -> bool:
    return tick.record is not None and tick.record.plan.round_index == plan.round_index


def _continued(tick: Tick, plan: RoundPlan, parent: RoundPlan | None) -> RoundPlan:
    """The plan ahead with gangs of its parent that it was made without, in place of what it gives their jobs elsewhere.

    Only on nodes where it starts nothing: what a node has beside its workers is then not given twice.
    """
    if parent is None or plan.starts_at_s <= tick.now_s:
        return plan
    whole = replace(parent, leases=tuple(each for each in parent.leases if each.expires_at_s >= parent.ends_at_s))
    going_on = _left_out(tick, plan, whole)
    ids = {lease.job_id for lease in going_on}
    others = [lease for lease in plan.leases if lease.job_id not in ids]
    kept = {lease.job_id: lease for lease in going_on if _is_left(lease, others, whole, tick.seen.cluster)}
    rest = (lease for lease in plan.leases if lease.job_id not in kept)
    return replace(plan, leases=(*rest, *kept.values())) if kept else plan


def _left_out(tick: Tick, plan: RoundPlan, parent: RoundPlan) -> list[Lease]:
    """Return the leases of gangs that go on after the parent, and are not in the plan."""
    planned = {(lease.job_id, lease.generation) for lease in plan.leases}
    going_on = staying(tick, parent, starts_at_s=plan.starts_at_s, ends_at_s=plan.ends_at_s)
    ours = (lease for lease in going_on if lease.job_id in tick.index.non_preemptible)
    return [lease for lease in ours if (lease.job_id, lease.generation) not in planned]


def _is_left(lease: Lease, others: Sequence[Lease], parent: RoundPlan, cluster: Cluster) -> bool:
    """Return whether no other gang of a plan has a lease's workers, shares with its job, or starts on its nodes."""
    node_of = {worker.id: worker.node for worker in cluster.workers}
    before, own = {(each.job_id, each.generation) for each in parent.leases}, set(lease.worker_ids)
    new = (each for each in others if (each.job_id, each.generation) not in before)
    started_on = {node_of.get(worker) for each in new for worker in each.worker_ids}
    is_apart = all(own.isdisjoint(each.worker_ids) and lease.job_id not in each.combination for each in others)
    return is_apart and started_on.isdisjoint(node_of.get(worker) for worker in own)


def _restored(tick: Tick, plan: RoundPlan) -> RoundPlan:
    longer = {}
    for lease in plan.leases:
        is_cut = tick.now_s < lease.expires_at_s < plan.ends_at_s
        if is_cut and lease.job_id in tick.index.non_preemptible and _holds_on(tick, lease):
            longer[lease.job_id] = replace(lease, expires_at_s=_until_s(tick, lease, plan.ends_at_s))
    rest = {worker for lease in plan.leases if lease.job_id not in longer for worker in lease.worker_ids}
    given = {job_id: each for job_id, each in longer.items() if rest.isdisjoint(each.worker_ids)}
    leases = tuple(given.get(lease.job_id, lease) for lease in plan.leases)
    return replace(plan, leases=leases) if leases != plan.leases else plan


def without_ended(plan: RoundPlan, now_s: float) -> RoundPlan:
    """Return the plan without leases that ended early and may have made room for others (planning/backfill.py)."""
    if all(lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s for lease in plan.leases):
        return plan
    live = (lease for lease in plan.leases if lease.expires_at_s > now_s or lease.expires_at_s >= plan.ends_at_s)
    return replace(plan, leases=tuple(live))
