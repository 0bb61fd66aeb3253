"""Gives workers that are free in the middle of a round to waiting jobs at once, until the round ends.

A plan is amended, never replaced: leases that ended early are cut where they ended, new ones are added to it with the
round's own end. These leases come on top of the target fractions, so nothing is charged to the ledger. Where a waiting
job cannot be preempted, what it is given lasts, so the policy is asked anew about those that wait and what is free.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import attrgetter

import numpy as np

from gavel.mechanism.cluster.feasibility import used_by
from gavel.mechanism.cluster.nodes import usable
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.caps import is_capped
from gavel.mechanism.planning.invariants import check_plan, needs_are_met
from gavel.mechanism.planning.placing import chosen_and_placed, needs_of, together
from gavel.mechanism.planning.planner import Ledger, SelectionProblem
from gavel.mechanism.planning.problem import Estimate, as_known, rates_of
from gavel.mechanism.planning.switch_costs import pays_a_start
from gavel.mechanism.tick import Tick
from gavel.ports import ThroughputEstimator
from gavel.types import (
    NO_NEEDS,
    Cluster,
    FloatArray,
    GangSeen,
    GangState,
    Job,
    JobId,
    JobSpec,
    JobState,
    Lease,
    Needs,
    Planner,
    RoundPlan,
    WorkerId,
)
from gavel.types.identity_memo import IdentityMemo

LOOKED_AT_ONCE = 64  # at least so many waiting jobs are considered together

Held = tuple[tuple[WorkerId, ...], Needs]
"""The workers of a gang, and what its ranks need."""
Targets = Callable[[Sequence[Job], Layout], Ledger]
"""The fractions that the policy gives waiting jobs, by job and type, of the workers of a layout."""
RatesAndLag = Callable[[Sequence[int], Layout], tuple[FloatArray, FloatArray]]
"""Steps/s of some rows on the types of a layout, 0 where a gang does not fit, and their lags in rounds; both (n, m)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What can be filled at `now_s`: the `waiting` jobs in order, and `cluster`, the usable part of the `whole` one.

    `ahead` is the round after `plan`, if it is planned already; `lag` is empty unless the planner keeps lags.
    `targets` asks the policy about jobs that cannot be preempted, and those that wait with them.
    """

    plan: RoundPlan
    ahead: RoundPlan | None
    jobs: Mapping[JobId, Job]
    gangs: Sequence[GangSeen]
    waiting: Sequence[Job]
    cluster: Cluster
    whole: Cluster
    estimate: Estimate
    lag: Ledger
    now_s: float
    spec_of: Callable[[Job], JobSpec] = attrgetter("spec")  # with the kind whose rates apply to the job
    targets: Targets = lambda jobs, layout: {}

    @property
    def question(self) -> tuple[object, ...]:
        """A key, equal for two gaps only if `backfill` answers both alike: None is not worked out twice."""
        gangs = frozenset((gang.job_id, gang.generation) for gang in self.gangs if gang.state is not GangState.ENDED)
        workers = tuple(worker.id for worker in self.cluster.workers)
        ahead = self.ahead.round_index if self.ahead else 0
        return self.plan.round_index, ahead, gangs, workers, tuple(self.waiting)


def gap_of(
    tick: Tick,
    estimator: ThroughputEstimator,
    *,
    minimum_lease_fraction: float,
    switch_cost_s: Mapping[str, float],
    planner: Planner,
    targets: Targets,
) -> Gap | None:
    """Return what may be filled in the round in force; None if nobody waits, or too little is left or free of it.

    A job waits for the next round if less is left of this one than twice the switch cost of its kind, or than the
    fraction `minimum_lease_fraction`. Neither counts for one that is not preempted, as its gang goes on after the
    round; but where the next round is planned without it, it waits for the one after that.
    """
    record = next((each for each in reversed(tick.snapshot.round_records) if each.plan.starts_at_s <= tick.now_s), None)
    is_replaced = tick.record is not None and tick.record.plan.starts_at_s <= tick.now_s
    left_s = record.plan.ends_at_s - tick.now_s if record and not is_replaced else 0.0
    if record is None or left_s <= 0 or not _is_any_free(tick, record.plan):
        return None
    ahead = next((each for each in tick.round_plans if each.starts_at_s > tick.now_s), None)
    is_short = left_s < minimum_lease_fraction * record.plan.duration_s
    waiting = _waiting(tick, ahead, switch_cost_s, 0.0 if is_short else left_s)
    if not waiting:
        return None
    return Gap(
        plan=record.plan,
        ahead=ahead,
        jobs=tick.jobs,
        gangs=tick.seen.gangs,
        waiting=waiting,
        cluster=tick.usable,
        whole=tick.seen.cluster,
        estimate=estimator.estimate,
        lag=record.lag_rounds if planner == "lag" else {},
        now_s=tick.now_s,
        spec_of=lambda job: as_known(job, estimator).spec,
        targets=targets,
    )


def _is_any_free(tick: Tick, plan: RoundPlan) -> bool:
    """Return whether some worker is neither leased in the plan nor held: looked at before the jobs, which are many."""
    live = live_leases(plan, tick.jobs, tick.usable, tick.now_s)
    taken = {worker for lease in live for worker in lease.worker_ids} | _held(tick.seen.gangs)
    return not taken.issuperset(worker.id for worker in tick.usable.workers)


def _waiting(tick: Tick, ahead: RoundPlan | None, switch_cost_s: Mapping[str, float], left_s: float) -> list[Job]:
    """The queued jobs of tiers without a cap that may start now, in order. `left_s`: 0 if too little is left."""
    waiting = [job for job in tick.wanting if job.state is JobState.QUEUED]
    capped = {name for name in tick.snapshot.tiers if is_capped(name, tick.snapshot.tiers)}
    if capped:
        waiting = [job for job in waiting if job.spec.tier not in capped]
    planned = {lease.job_id for lease in ahead.leases} if ahead else set()

    def may_start(job: Job) -> bool:
        if not job.spec.preemptible:
            return ahead is None or job.id in planned
        return pays_a_start(job.spec.kind, switch_cost_s, left_s)

    return [job for job in waiting if may_start(job)]


def backfill(gap: Gap) -> RoundPlan | None:
    """Return the plan in force with leases for waiting jobs on free workers added; None if there are none to add.

    Whole gangs of one type, in the order of the planner: by lag, then by arrival on the fastest type that is free.
    A job that has a lease in the next round starts early on the workers of that lease, under the same generation,
    or waits for it. Raises InvariantViolated if the amended plan breaks an invariant.
    """
    live = live_leases(gap.plan, gap.jobs, gap.cluster, gap.now_s)
    held = {(lease.job_id, lease.generation) for lease in live}
    over = [lease for lease in gap.plan.leases if (lease.job_id, lease.generation) not in held]
    taken = {worker for lease in live for worker in lease.worker_ids} | _held(gap.gangs)
    served = {lease.job_id for lease in live}
    waiting = [job for job in gap.waiting if job.id not in served and job.state is JobState.QUEUED]
    if not waiting or taken.issuperset(worker.id for worker in gap.cluster.workers):
        return None
    expected = _expected(gap)
    workers = FreeWorkers(cluster=gap.cluster, taken=frozenset(taken), held=_held_with_needs(gap, live))
    early = _early(gap, expected, {job.id for job in waiting}, workers)
    workers = workers.without([(lease.worker_ids, gap.jobs[lease.job_id].spec.needs) for lease in early])
    given = _given(gap, [job for job in waiting if job.id not in expected], workers)
    if not early and not given:
        return None
    cut = (replace(lease, expires_at_s=min(lease.expires_at_s, gap.now_s)) for lease in over)
    amended = replace(gap.plan, leases=(*cut, *live, *early, *given))
    _check(amended, gap)
    needs_are_met([*early, *given], [*live, *early, *given], gap.whole, gap.jobs)
    return amended


def _check(amended: RoundPlan, gap: Gap) -> None:
    """Raise InvariantViolated if the plan breaks an invariant; leases on nodes that were just lost do not count."""
    there = {worker.id for worker in gap.whole.workers}
    plan = replace(amended, leases=tuple(each for each in amended.leases if there.issuperset(each.worker_ids)))
    before = replace(plan, round_index=plan.parent_round_index, leases=())
    check_plan(plan, cluster=gap.whole, jobs=gap.jobs, parent=before, now_s=gap.now_s)


def live_leases(plan: RoundPlan, jobs: Mapping[JobId, Job], cluster: Cluster, now_s: float) -> list[Lease]:
    """Return the leases whose gang runs, or may still start on the usable `cluster`; the others hold no workers."""
    there = {worker.id for worker in cluster.workers}
    return [lease for lease in plan.leases if lease.expires_at_s > now_s and _is_live(lease, jobs, there)]


def _is_live(lease: Lease, jobs: Mapping[JobId, Job], there: set[WorkerId]) -> bool:
    job = jobs.get(lease.job_id)
    if job is None or job.generation > lease.generation:
        return False
    if job.generation == lease.generation:
        return job.state is JobState.LEASED
    return job.is_wanted and there.issuperset(lease.worker_ids)


@dataclass(frozen=True, kw_only=True)
class FreeWorkers:
    """The workers of `cluster` that are not `taken`, and `held`: workers and needs of the gangs that hold the others.

    `held` is empty while neither they nor those that wait need more than workers.
    """

    cluster: Cluster
    taken: frozenset[WorkerId]
    held: tuple[Held, ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """Return the free workers, on nodes of which others hold a part; the same one each time it is asked for."""
        node_of = {worker.id: worker.node for worker in self.cluster.workers} if self.held else {}
        return Layout(usable(self.cluster, {}, self.taken), used_by(self.held, node_of))

    def without(self, workers: Sequence[Held]) -> "FreeWorkers":
        """Return what is left once more gangs have got these."""
        taken = self.taken.union(*[ids for ids, _ in workers])
        return replace(self, taken=taken, held=(*self.held, *workers) if self.held else ())


def fill(
    sizes: Sequence[int],
    behind: Sequence[float],
    rates_and_lag: RatesAndLag,
    *,
    workers: FreeWorkers,
    needs: Sequence[Needs],
) -> dict[int, tuple[WorkerId, ...]]:
    """Return the workers for each row that gets a gang, from those that are free (row -> workers).

    A row is a waiting job; rows are in order of arrival. Those that are more `behind` go before the others.
    Rows after those that fill all free workers, and those for which no node has room, are not looked at. `sizes`:
    workers of each row's gang; `needs`: of its ranks.
    """
    placed: dict[int, tuple[WorkerId, ...]] = {}
    free = workers.layout
    most = max(free.capacity_workers.values(), default=0)
    rest = iter(sorted([row for row, size in enumerate(sizes) if size <= most], key=lambda row: -behind[row]))
    while free.types:
        count, has_place = max(LOOKED_AT_ONCE, 4 * len(free.type_of)), free.feasibility.has_place
        rows = list(islice((row for row in rest if not workers.held or has_place(needs[row], sizes[row])), count))
        if not rows:
            break
        more = _filled(rows, sizes, free, rates_and_lag, needs)
        placed |= more
        if more:
            workers = workers.without([(ids, needs[row]) for row, ids in more.items()])
            free = workers.layout
    return placed


def _filled(
    rows: Sequence[int], sizes: Sequence[int], free: Layout, rates_and_lag: RatesAndLag, needs: Sequence[Needs]
) -> dict[int, tuple[WorkerId, ...]]:
    rates, lag = rates_and_lag(rows, free)
    selection = SelectionProblem(
        rates=rates,
        scale_factor=np.array([sizes[row] for row in rows], dtype=np.int64),
        capacity_workers=free.capacity,
        target_fraction=np.zeros_like(rates),
        ledger=lag,
        kept=np.full(len(rows), -1, dtype=np.int64),
        round_index=0,
    )
    _, _, placed = chosen_and_placed(selection, free, {}, needs_of([needs[row] for row in rows]))
    return {rows[index]: workers for index, workers in sorted(placed.items())}


def _expected(gap: Gap) -> dict[JobId, Lease]:
    """The lease with which each job's next gang is expected in the next round.

    Its last one: a next round that was in force before the clock was set back may have two, one after the other.
    """
    leases = sorted(gap.ahead.leases, key=attrgetter("generation")) if gap.ahead else ()
    jobs = gap.jobs
    return {
        lease.job_id: lease
        for lease in leases
        if lease.job_id in jobs and lease.generation > jobs[lease.job_id].generation
    }


def _held(gangs: Iterable[GangSeen]) -> set[WorkerId]:
    return {worker for gang in gangs if gang.state is not GangState.ENDED for worker in gang.worker_ids}


def _held_with_needs(gap: Gap, live: Sequence[Lease]) -> tuple[Held, ...]:
    """What gangs hold, each under a lease or still there; () while nobody needs more than workers."""
    holders = {lease.job_id: lease.worker_ids for lease in live}
    holders |= {gang.job_id: gang.worker_ids for gang in gap.gangs if gang.state is not GangState.ENDED}
    jobs = gap.jobs
    held = [(ids, jobs[name].spec.needs if name in jobs else NO_NEEDS) for name, ids in holders.items()]
    if all(needs == NO_NEEDS for _, needs in held) and all(job.spec.needs == NO_NEEDS for job in gap.waiting):
        return ()
    return (*held, ((), NO_NEEDS))  # never empty: what is given now is added to it


def _early(gap: Gap, expected: Mapping[JobId, Lease], waiting: set[JobId], workers: FreeWorkers) -> list[Lease]:
    """Leases of the next round whose workers are all free already; a packed pair starts early together or not."""
    there = {worker.id for worker in gap.cluster.workers} - workers.taken
    of_members = Counter(lease.combination for lease in expected.values())
    leases = [
        lease
        for lease in expected.values()
        if waiting.issuperset(lease.combination)
        and of_members[lease.combination] == len(lease.combination)
        and there.issuperset(lease.worker_ids)
    ]
    if workers.held:
        room = workers.layout.room()
        gangs = dict.fromkeys((lease.combination, lease.worker_ids) for lease in leases)
        needs = {members: together([gap.jobs[each].spec.needs for each in members]) for members, _ in gangs}
        placed = {members for members, ids in gangs if room.hold(ids, needs[members])}
        leases = [lease for lease in leases if lease.combination in placed]
    return [_now(gap, lease) for lease in leases]


def _given(gap: Gap, jobs: Sequence[Job], workers: FreeWorkers) -> list[Lease]:
    """Leases for `jobs` on free workers: whole gangs, alone on their workers."""
    lag_rounds, behind = _lag_rounds(gap, jobs, workers)

    def rates_and_lag(rows: Sequence[int], free: Layout) -> tuple[FloatArray, FloatArray]:
        rates = rates_of([gap.spec_of(jobs[row]) for row in rows], free.feasibility, gap.estimate)
        lag = [[lag_rounds.get((jobs[row].id, name), 0.0) for name in free.types] for row in rows]
        return rates, np.array(lag)

    sizes = [job.spec.scale_factor for job in jobs]
    needs = _NeedsOf(jobs)
    type_of = {worker.id: worker.accelerator_type for worker in gap.cluster.workers}
    placed = fill(sizes, behind, rates_and_lag, workers=workers, needs=needs)
    planned = _planned_generations(gap, {jobs[row].id for row in placed})
    return [
        _now(
            gap,
            Lease(
                job_id=jobs[row].id,
                generation=max(jobs[row].generation, planned.get(jobs[row].id, 0)) + 1,
                combination=(jobs[row].id,),
                accelerator_type=type_of[ids[0]],
                worker_ids=ids,
                round_index=gap.plan.round_index,
                expires_at_s=gap.plan.ends_at_s,
                plan=jobs[row].spec.plan,
            ),
        )
        for row, ids in placed.items()
    ]


def _lag_rounds(gap: Gap, jobs: Sequence[Job], workers: FreeWorkers) -> tuple[Ledger, list[float]]:
    """Return by how many rounds each job lags on each type, and how far each of them is behind, see `fill`."""
    if all(job.spec.preemptible for job in jobs):
        ids_behind = _behind(gap.lag)
        return gap.lag, [float(job.id in ids_behind) for job in jobs]
    lag = dict(gap.lag)
    for key, fraction in gap.targets(jobs, workers.layout).items():
        lag[key] = lag.get(key, 0.0) + fraction
    most: dict[JobId, float] = {}
    for (job_id, _), rounds in lag.items():
        most[job_id] = max(most.get(job_id, 0.0), rounds)
    return lag, [most.get(job.id, 0.0) for job in jobs]


_behind = IdentityMemo[frozenset[JobId]](
    lambda lag: frozenset(job_id for (job_id, _), rounds in lag.items() if rounds > 0)
)


class _NeedsOf(Sequence[Needs]):
    """What the ranks of each job need; worked out for those that are looked at."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __getitem__(self, row: int) -> Needs:  # type: ignore[override]
        return self._jobs[row].spec.needs


def _planned_generations(gap: Gap, job_ids: Collection[JobId]) -> dict[JobId, int]:
    """Return the highest generation that the plan has written down for each of these jobs; the next one has no higher
    one, as who has a lease there waits for it.
    """
    highest: dict[JobId, int] = {}
    for lease in (each for each in gap.plan.leases if each.job_id in job_ids):
        highest[lease.job_id] = max(lease.generation, highest.get(lease.job_id, 0))
    return highest


def _now(gap: Gap, lease: Lease) -> Lease:
    """The lease from now to the end of the round in force."""
    index, ends_at_s = gap.plan.round_index, gap.plan.ends_at_s
    return replace(lease, round_index=index, expires_at_s=ends_at_s, starts_at_s=gap.now_s)
