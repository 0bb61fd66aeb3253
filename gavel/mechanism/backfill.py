"""Workers that are free in the middle of a round go at once to who comes next, until the round ends.

A plan is amended, never replaced: leases that ended early are cut where they ended, new ones are added to it with the
round's own end. What is given here comes on top of what the allocation promised, so nothing is charged to the ledger.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.mechanism.invariants import check_plan
from gavel.mechanism.nodes import usable
from gavel.mechanism.placement import Layout, place
from gavel.mechanism.planner import Ledger, Planner, Standing, choose
from gavel.mechanism.problem import Estimate, as_known, rates_of
from gavel.mechanism.switching import ANY_OTHER
from gavel.mechanism.tick import Tick
from gavel.ports import ThroughputEstimator
from gavel.types import (
    Cluster,
    FloatArray,
    GangSeen,
    GangState,
    Job,
    JobId,
    JobState,
    Lease,
    RoundPlan,
    WorkerId,
)

LOOKED_AT_ONCE = 64  # waiting jobs, at least

Known = Callable[[Sequence[int], Layout], tuple[FloatArray, FloatArray]]
"""Steps/s of some rows on the types of a layout, 0 where a gang does not fit, and the rounds they are owed; (n, m)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What there is to fill at `now_s`: `waiting` jobs, the next one first, and the usable part of the `whole` cluster.

    `ahead` is the round planned after `plan`, if it is known; `owed`: rounds, if the planner keeps them.
    """

    plan: RoundPlan
    ahead: RoundPlan | None
    jobs: Mapping[JobId, Job]
    gangs: Sequence[GangSeen]
    waiting: Sequence[Job]
    cluster: Cluster
    whole: Cluster
    estimate: Estimate
    owed: Ledger
    now_s: float

    @property
    def question(self) -> tuple[object, ...]:
        """Equal for two gaps only if both have the same answer: nothing to give is not worked out twice."""
        gangs = frozenset((gang.job_id, gang.token) for gang in self.gangs if gang.state is not GangState.ENDED)
        workers = tuple(worker.id for worker in self.cluster.workers)
        ahead = self.ahead.round_index if self.ahead else 0
        return self.plan.round_index, ahead, gangs, workers, tuple(self.waiting)


def gap_of(
    tick: Tick,
    waiting: Iterable[Job],
    estimator: ThroughputEstimator,
    *,
    minimum_lease_fraction: float,
    switch_cost_s: Mapping[str, float],
    planner: Planner,
) -> Gap | None:
    """What may be filled in the round in force; None: there is no round, or too little is left of it.

    A job waits for the next round if twice what a start of its kind costs would not fit into what is left.
    """
    record = next((each for each in reversed(tick.snapshot.rounds) if each.plan.starts_at_s <= tick.now_s), None)
    is_replaced = tick.record is not None and tick.record.plan.starts_at_s <= tick.now_s
    left_s = record.plan.ends_at_s - tick.now_s if record and not is_replaced else 0.0
    if record is None or left_s <= 0 or left_s < minimum_lease_fraction * record.plan.duration_s:
        return None
    other_s = switch_cost_s.get(ANY_OTHER, 0.0)
    worth = (job for job in waiting if 2 * switch_cost_s.get(job.spec.kind, other_s) <= left_s)
    return Gap(
        plan=record.plan,
        ahead=next((each for each in tick.rounds if each.starts_at_s > tick.now_s), None),
        jobs=tick.jobs,
        gangs=tick.seen.gangs,
        waiting=[as_known(job, estimator) for job in worth],
        cluster=usable(tick.seen.cluster, tick.nodes),
        whole=tick.seen.cluster,
        estimate=estimator.estimate,
        owed=record.owed_rounds if planner == "owed" else {},
        now_s=tick.now_s,
    )


def backfill(gap: Gap) -> RoundPlan | None:
    """The plan in force with leases for waiting jobs on workers that are free; None if there are none to give.

    Whole gangs of one type, in the order of the planner: by what is owed, then by arrival on the fastest type that is
    free. A job that the next round has a place for starts early there, under the same token, or waits for it. Raises
    InvariantViolated.
    """
    live = live_leases(gap.plan, gap.jobs, gap.cluster, gap.now_s)
    held = {(lease.job_id, lease.token) for lease in live}
    over = [lease for lease in gap.plan.leases if (lease.job_id, lease.token) not in held]
    taken = {worker for lease in live for worker in lease.worker_ids} | _held(gap.gangs)
    served = {lease.job_id for lease in live}
    waiting = [job for job in gap.waiting if job.id not in served and job.state is JobState.QUEUED]
    if not waiting or taken.issuperset(worker.id for worker in gap.cluster.workers):
        return None
    ahead = gap.ahead.leases if gap.ahead else ()
    expected = {lease.job_id for lease in ahead if _is_expected(lease, gap.jobs)}
    early = _early(gap, expected.intersection(job.id for job in waiting), taken)
    taken |= {worker for lease in early for worker in lease.worker_ids}
    given = _given(gap, [job for job in waiting if job.id not in expected], taken)
    if not early and not given:
        return None
    cut = (replace(lease, expires_at_s=min(lease.expires_at_s, gap.now_s)) for lease in over)
    amended = replace(gap.plan, leases=(*cut, *live, *early, *given))
    _check(amended, gap)
    return amended


def _check(amended: RoundPlan, gap: Gap) -> None:
    """Raises InvariantViolated. What ran on a node that was just lost is no fault of the new leases."""
    there = {worker.id for worker in gap.whole.workers}
    plan = replace(amended, leases=tuple(each for each in amended.leases if there.issuperset(each.worker_ids)))
    before = replace(plan, round_index=plan.parent_round_index, leases=())
    check_plan(plan, cluster=gap.whole, jobs=gap.jobs, parent=before, now_s=gap.now_s)


def live_leases(plan: RoundPlan, jobs: Mapping[JobId, Job], cluster: Cluster, now_s: float) -> list[Lease]:
    """Leases whose gang runs, or may still start on the usable `cluster`; others keep no workers from anybody."""
    there = {worker.id for worker in cluster.workers}
    return [lease for lease in plan.leases if lease.expires_at_s > now_s and _is_live(lease, jobs, there)]


def _is_live(lease: Lease, jobs: Mapping[JobId, Job], there: set[WorkerId]) -> bool:
    job = jobs.get(lease.job_id)
    if job is None or job.token > lease.token:
        return False
    if job.token == lease.token:
        return job.state is JobState.LEASED
    return job.is_wanted and there.issuperset(lease.worker_ids)


def fill(
    sizes: Sequence[int], is_owed: Sequence[bool], cluster: Cluster, taken: set[WorkerId], known: Known
) -> dict[int, tuple[WorkerId, ...]]:
    """Workers of `cluster` that are not `taken` for each row that gets a gang; a row is a waiting job, the first first.

    Those that are owed something, wherever that is, go before the others. Looks no further than it takes to fill what
    is free. `sizes`: workers of each row's gang.
    """
    placed: dict[int, tuple[WorkerId, ...]] = {}
    free = Layout(usable(cluster, {}, taken))
    most = max(free.capacity_workers.values(), default=0)
    rest = sorted((row for row, size in enumerate(sizes) if size <= most), key=lambda row: not is_owed[row])
    while rest and free.types:
        count = max(LOOKED_AT_ONCE, 4 * len(free.type_of))
        more = _filled(rest[:count], sizes, free, known)
        rest = rest[count:]
        placed |= more
        if more:
            taken = taken | {worker for workers in more.values() for worker in workers}
            free = Layout(usable(cluster, {}, taken))
    return placed


def _filled(rows: Sequence[int], sizes: Sequence[int], free: Layout, known: Known) -> dict[int, tuple[WorkerId, ...]]:
    rates, owed = known(rows, free)
    chosen, _ = choose(
        Standing(
            rates=rates,
            scale_factor=np.array([sizes[row] for row in rows], dtype=np.int64),
            capacity_workers=free.capacity,
            promised=np.zeros_like(rates),
            ledger=owed,
            kept=np.full(len(rows), -1, dtype=np.int64),
            round_index=0,
        )
    )
    gangs = [(index, free.types[column], sizes[rows[index]]) for index, column in chosen.items()]
    return {rows[index]: workers for index, workers in sorted(place(gangs, free, {}).items())}


def _is_expected(lease: Lease, jobs: Mapping[JobId, Job]) -> bool:
    return lease.job_id in jobs and lease.token > jobs[lease.job_id].token


def _held(gangs: Iterable[GangSeen]) -> set[WorkerId]:
    return {worker for gang in gangs if gang.state is not GangState.ENDED for worker in gang.worker_ids}


def _early(gap: Gap, waiting: set[JobId], taken: set[WorkerId]) -> list[Lease]:
    """Leases of the next round whose workers are all free already; a packed pair starts early together or not."""
    there = {worker.id for worker in gap.cluster.workers} - taken
    found = [
        lease
        for lease in (gap.ahead.leases if gap.ahead else ())
        if waiting.issuperset(lease.combination) and there.issuperset(lease.worker_ids)
    ]
    return [_now(gap, lease) for lease in found]


def _given(gap: Gap, jobs: Sequence[Job], taken: set[WorkerId]) -> list[Lease]:
    """Leases for `jobs` on what is free, whole gangs alone on their workers."""

    def known(rows: Sequence[int], free: Layout) -> tuple[FloatArray, FloatArray]:
        rates = [rates_of(jobs[row].spec, free.types, free.capacity, gap.estimate) for row in rows]
        owed = [[gap.owed.get((jobs[row].id, name), 0.0) for name in free.types] for row in rows]
        return np.array(rates), np.array(owed)

    owed_ids = {job_id for (job_id, _), rounds in gap.owed.items() if rounds > 0}
    sizes, is_owed = [job.spec.scale_factor for job in jobs], [job.id in owed_ids for job in jobs]
    type_of = {worker.id: worker.accelerator_type for worker in gap.cluster.workers}
    return [
        _now(
            gap,
            Lease(
                job_id=jobs[row].id,
                token=_next_token(gap, jobs[row]),
                combination=(jobs[row].id,),
                accelerator_type=type_of[workers[0]],
                worker_ids=workers,
                round_index=gap.plan.round_index,
                expires_at_s=gap.plan.ends_at_s,
            ),
        )
        for row, workers in fill(sizes, is_owed, gap.cluster, taken, known).items()
    ]


def _next_token(gap: Gap, job: Job) -> int:
    """Above every token that the job had, or that a plan has written down for it."""
    plans = (gap.plan, gap.ahead) if gap.ahead else (gap.plan,)
    planned = [lease.token for plan in plans for lease in plan.leases if lease.job_id == job.id]
    return max(job.token, *planned, 0) + 1


def _now(gap: Gap, lease: Lease) -> Lease:
    """The lease from now to the end of the round in force."""
    index, ends_at_s = gap.plan.round_index, gap.plan.ends_at_s
    return replace(lease, round_index=index, expires_at_s=ends_at_s, starts_at_s=gap.now_s)
