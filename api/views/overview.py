"""The cluster at a glance, placements, tiers' shares over time: counted here, so that the answers stay small."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

from api.schemas.overview import (
    FallbackView,
    PlacedRound,
    PlacementBlock,
    Placements,
    Queue,
    QueueItem,
    RoundSummary,
    SharesView,
    SolveSummary,
    Summary,
    WorstJob,
)
from api.views.jobs_and_rounds import leases_in_force, shown_state
from api.views.startup import short_rounds
from gavel.mechanism.explaining.fairness import finish_time_fairness
from gavel.mechanism.explaining.waiting import Line
from gavel.ports import Snapshot
from gavel.types import (
    Cluster,
    Fallback,
    Job,
    JobId,
    JobState,
    Lease,
    Reason,
    RoundPlan,
    RoundRecord,
    Tier,
    WorkerId,
    chain_of,
    parts_held,
    shares_by_weight,
    total_by,
)

Sees = Callable[[Job], bool]


def summary(snapshot: Snapshot, cluster: Cluster, notes: Sequence[str], sees: Sees, now_s: float) -> Summary:
    """Return the present summary. Jobs that the caller may not see are not counted."""
    plans = [record.plan for record in reversed(snapshot.round_records)]
    leases = leases_in_force(plans, snapshot.jobs)
    jobs = [job for job in snapshot.jobs.values() if sees(job)]
    busy = {worker for lease in leases.values() for worker in lease.worker_ids}
    states = Counter(shown_state(job, leases.get(job.id)) for job in jobs)
    return Summary(
        round=_round(plans, now_s),
        solve=_solve(snapshot.round_records[-1]) if snapshot.round_records else None,
        jobs={state.value: count for state, count in states.items()},
        tiers=dict(Counter(job.spec.tier for job in jobs)),
        workers=len(cluster.workers),
        busy_workers=sum(worker.id in busy for worker in cluster.workers),
        worst=_worst(jobs, now_s),
        notes=[
            *_failing(snapshot.round_records[-1:]),
            *short_rounds(snapshot, jobs),
            *notes,
            *(f"{node.name}: {node.problem}" for node in cluster.nodes if node.problem),
        ],
    )


def _failing(newest: Sequence[RoundRecord]) -> Iterator[str]:
    """Yield a sentence on the policy that fails, if one does."""
    for why in (record.allocation.fallback for record in newest):
        if why is not None:
            since = datetime.fromtimestamp(why.since_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            yield f"policy {why.policy} fails since {since}: {why.error}. In force instead: {why.instead}"


def _round(plans: Sequence[RoundPlan], now_s: float) -> RoundSummary | None:
    """Return the newest round that has begun; `plans` newest first."""
    begun = [i for i, plan in enumerate(plans) if plan.starts_at_s <= now_s]
    if not begun:
        return None
    plan, before = plans[begun[0]], plans[begun[0] + 1 : begun[0] + 2]
    held = {(lease.job_id, lease.generation) for each in before for lease in each.leases}
    return RoundSummary(
        round_index=plan.round_index,
        starts_at_s=plan.starts_at_s,
        duration_s=plan.duration_s,
        policy=plan.policy,
        leases=len(plan.leases),
        renewed_leases=sum((lease.job_id, lease.generation) in held for lease in plan.leases),
        profiling_leases=sum(lease.is_profiling for lease in plan.leases),
    )


def _solve(record: RoundRecord) -> SolveSummary:
    return SolveSummary(
        solver=record.allocation.solver,
        solver_outcome=record.solver_outcome,
        solve_time_s=record.allocation.solve_time_s,
        is_fallback=record.allocation.is_fallback,
        fallback=_fallback(record.allocation.fallback),
    )


def _fallback(why: Fallback | None) -> FallbackView | None:
    if why is None:
        return None
    return FallbackView(policy=why.policy, error=why.error, since_s=why.since_s, instead=why.instead)


def _worst(jobs: Sequence[Job], now_s: float) -> WorstJob | None:
    judged = [(rho, job) for job in jobs if (rho := finish_time_fairness(job, now_s)) is not None]
    if not judged:
        return None
    rho, job = max(judged, key=lambda each: each[0])
    return WorstJob(id=job.id, name=job.spec.name, rho=rho)


# --- placements -------------------------------------------------------------------------------------------------


def placements(
    plans: Sequence[RoundPlan], workers: Sequence[WorkerId], jobs: Mapping[JobId, Job], sees: Sees
) -> Placements:
    """Return who held which worker. `plans`: oldest first. `jobs`: the jobs of their leases that are still stored."""
    rows: dict[WorkerId, list[PlacementBlock]] = {worker: [] for worker in workers}
    for plan in plans:
        for lease in plan.leases:
            for worker in lease.worker_ids:
                if worker in rows:
                    _extend(rows[worker], worker, lease, plan.round_index, jobs, sees)
    return Placements(
        rounds=[_placed(plan) for plan in plans],
        worker_ids=list(workers),
        workers=len(workers),
        blocks=[block for row in rows.values() for block in row],
    )


def _extend(
    row: list[PlacementBlock], worker: WorkerId, lease: Lease, index: int, jobs: Mapping[JobId, Job], sees: Sees
) -> None:
    """Make the worker's last block longer if the lease is the same one renewed; otherwise begin another block."""
    job = jobs.get(lease.job_id)
    is_seen = job is not None and sees(job)
    job_id = lease.job_id if is_seen else None
    last = row[-1] if row else None
    renewed = (job_id, lease.generation, lease.is_profiling, index - 1)
    if last and (last.job_id, last.generation, last.is_profiling, last.last_round) == renewed:
        row[-1] = last.model_copy(update={"last_round": index, "leases": last.leases + 1})
        return
    row.append(
        PlacementBlock(
            worker_id=worker,
            accelerator_type=lease.accelerator_type,
            job_id=job_id,
            name=job.spec.name if job and is_seen else "",
            tier=job.spec.tier if job and is_seen else "",
            generation=lease.generation,
            first_round=index,
            last_round=index,
            leases=1,
            is_profiling=lease.is_profiling,
        )
    )


def _placed(plan: RoundPlan) -> PlacedRound:
    return PlacedRound(round_index=plan.round_index, starts_at_s=plan.starts_at_s, duration_s=plan.duration_s)


# --- shares -----------------------------------------------------------------------------------------------------


def shares(
    plans: Sequence[RoundPlan],
    tiers: Sequence[Tier],
    tier_of: Mapping[JobId, str],
    workers: Collection[WorkerId],
    unfinished: Iterable[Job],
) -> SharesView:
    """Return each tier's part of all workers in each round, that of the tiers below it included; `plans` oldest first.

    `unfinished`: everybody's jobs. Only their number is told, by tier.
    """
    by_name = {tier.name: tier for tier in tiers}
    chains = {name: chain_of(name, by_name) for name in by_name}
    parts: dict[str, list[float]] = {name: [0.0] * len(plans) for name in by_name}
    for i, plan in enumerate(plans):
        keys = (tier_of.get(lease.job_id, "") for lease in plan.leases)
        for name, held in total_by(keys, parts_held(plan, workers)).items():
            for each in chains.get(name, ()):
                parts[each][i] += held
    jobs = Counter(job.spec.tier for job in unfinished)
    used = {above for name in jobs for above in chains.get(name, ())}
    by_weight = shares_by_weight(by_name, jobs)
    return SharesView(
        rounds=[_placed(plan) for plan in plans],
        tiers=parts,
        jobs={name: jobs[name] for name in by_name},
        by_weight={name: by_weight[name] if name in used else 0.0 for name in by_name},
    )


# --- queue ------------------------------------------------------------------------------------------------------


Place = tuple[int | None, Job]
"""A job with its place in its tier; one that the newest plan serves has no place."""


class Queued:
    """Unfinished jobs that hold no lease, tier by tier; those that the newest plan serves come first in each."""

    def __init__(self, places: Iterable[Place]) -> None:
        """`places`: of each tier in their order."""
        of_tier: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            of_tier[place[1].spec.tier].append(place)
        self._of_tier = dict(sorted(of_tier.items()))
        self._reasons = {name: Counter(job.reason for _, job in of) for name, of in self._of_tier.items()}

    def __iter__(self) -> Iterator[Place]:
        return chain.from_iterable(self._of_tier.values())

    def of(self, tier: str | None) -> Sequence[Place]:
        """Return the queue of a tier; None: of all."""
        return list(self) if tier is None else self._of_tier.get(tier, [])

    def reasons(self, tier: str | None) -> Counter[Reason]:
        """Return how many jobs of a tier wait for each reason; None: of all."""
        wanted = self._reasons.values() if tier is None else [self._reasons.get(tier, Counter())]
        return sum(wanted, Counter[Reason]())


def line_of(jobs: Mapping[JobId, Job], record: RoundRecord | None) -> Queued:
    """Return the queue as of the newest round, tier by tier, in the order and with the positions that jobs show."""
    line = Line(record)
    served = ((None, jobs[each]) for each in line.lease_of if each in jobs)
    return Queued(each for each in chain(served, line.in_order(jobs)) if each[1].state is JobState.QUEUED)


def queue(line: Queued, sees: Sees | None, *, tier: str | None, start: int, limit: int) -> Queue:
    """Return a page of the queue with the jobs that the caller may see (None: all). Positions count the others, too."""
    mine, reasons = line.of(tier), line.reasons(tier)
    if sees is not None:
        mine = [(place, job) for place, job in mine if sees(job)]
        reasons = Counter(job.reason for _, job in mine)
    return Queue(
        items=[_waiting(place, job) for place, job in mine[start : start + limit]],
        waiting=len(mine),
        reasons={reason: count for reason, count in reasons.items()},
    )


def _waiting(position: int | None, job: Job) -> QueueItem:
    return QueueItem(
        position=position,
        id=job.id,
        name=job.spec.name,
        kind=job.spec.kind,
        user=job.spec.user,
        tier=job.spec.tier,
        state=shown_state(job, None).value,
        reason=job.reason,
        message=job.explanation,
        priority=job.spec.priority,
        scale_factor=job.spec.scale_factor,
        submitted_at_s=job.submitted_at_s,
        steps=job.steps_so_far,
        total_steps=job.total_steps,
    )
