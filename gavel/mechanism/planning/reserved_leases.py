"""Leases of sessions whose reservation begins with a round, and rounds that end when a reservation begins.

So a session starts at its time as every gang of a new round does: those that had its workers have checkpointed by the
end of their leases.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from gavel.mechanism.cluster.feasibility import Workers
from gavel.mechanism.cluster.nodes import usable
from gavel.mechanism.cluster.placement import Layout, place
from gavel.mechanism.jobs.reservations import has_reservation, is_due, late_sentence
from gavel.mechanism.planning.non_preemptible import used_of_kept
from gavel.mechanism.planning.reserved_types import types_for
from gavel.mechanism.tick import Tick
from gavel.types import NO_NEEDS, AcceleratorType, Job, JobId, Lease, Needs, Reason, RoundPlan

LONGEST_ROUND = 1.5  # of the usual length; so the next one is not shorter than half of it
SHORTEST_ROUND = 0.1  # for reservations that begin shortly after one another: the next round has to be planned in it

Held = tuple[Workers, Needs]


def duration_s(starts_at_s: float, usual_s: float, reserved_at_s: Iterable[float]) -> float:
    """Return how long the round lasts, in seconds: as usual, or until a reservation begins if one does about then."""
    next_s = min((at_s for at_s in reserved_at_s if at_s > starts_at_s), default=inf)
    until_s = max(next_s - starts_at_s, SHORTEST_ROUND * usual_s)
    return until_s if until_s <= LONGEST_ROUND * usual_s else usual_s


def reserved_instants(tick: Tick) -> list[float]:
    """Return the instants at which sessions that have no gang are reserved to start."""
    jobs = [job for job in tick.index.non_preemptible.values() if has_reservation(job, tick.now_s) and job.is_wanted]
    return [job.spec.reserved_at_s for job in jobs if job.spec.reserved_at_s is not None]


def reserved_leases(
    tick: Tick, parent: RoundPlan | None, kept: Sequence[Lease], *, starts_at_s: float, ends_at_s: float
) -> tuple[Lease, ...]:
    """Return the leases of the sessions whose reservation has begun when the round starts; `kept`: who stays in it.

    A session for which there are no such workers is left out. It gets workers of its reserved type: that nobody has now
    if there are enough, else also those of one gang, else any. Only where nodes of the type are missing it gets another
    one, if no other reservation needs its workers.
    """
    has_lease = {lease.job_id for lease in kept}
    due = [
        job
        for job in tick.index.non_preemptible.values()
        if job.id not in has_lease and _starts(tick, job, starts_at_s)
    ]
    given = [*kept]
    for job in sorted(due, key=lambda each: (each.spec.reserved_at_s or 0.0, each.submitted_at_s, each.id)):
        lease = _lease(tick, job, parent, given, starts_at_s, ends_at_s)
        if lease is not None:
            given.append(lease)
    return tuple(given[len(kept) :])


def with_reserved_leases(
    tick: Tick, parent: RoundPlan | None, kept: Sequence[Lease], *, starts_at_s: float, ends_at_s: float
) -> tuple[Lease, ...]:
    """Return the leases that stay, with `reserved_leases`.

    Sessions that end by the start of the round are left out if a reservation needs their workers.
    """
    leases = reserved_leases(tick, parent, kept, starts_at_s=starts_at_s, ends_at_s=ends_at_s)
    others = [lease for lease in kept if (tick.jobs[lease.job_id].session_ends_at_s or inf) > starts_at_s]
    if len(others) < len(kept):
        without = reserved_leases(tick, parent, others, starts_at_s=starts_at_s, ends_at_s=ends_at_s)
        if len(without) > len(leases):
            kept, leases = others, without
    return (*kept, *leases)


def late_sessions(tick: Tick) -> dict[JobId, tuple[Reason, str]]:
    """Return reason and sentence of each session whose reservation has begun and for which no plan has workers."""
    due = [job for job in tick.index.conditional.values() if is_due(job, tick.now_s) and job.id not in tick.held]
    planned = {lease.job_id for plan in tick.round_plans for lease in plan.leases if _is_to_come(tick, lease)}
    late = [job for job in due if job.id not in planned and job.is_wanted]
    if not late:
        return {}
    there, staying = tick.usable.capacity_workers(), _staying_workers(tick)
    names = {job.id: job.spec.reserved_type for job in late}
    return {
        job.id: (Reason.RESERVED, late_sentence(job, there.get(names[job.id], 0), staying[names[job.id]]))
        for job in late
    }


def _starts(tick: Tick, job: Job, starts_at_s: float) -> bool:
    """Whether the session starts with the round: it is its time, and nothing else holds it."""
    hold = tick.held.get(job.id, (Reason.RESERVED, ""))[0]
    return hold is Reason.RESERVED and is_due(job, starts_at_s) and job.is_wanted and job.retry_at_s <= starts_at_s


def _lease(
    tick: Tick, job: Job, parent: RoundPlan | None, given: Sequence[Lease], starts_at_s: float, ends_at_s: float
) -> Lease | None:
    before = next((lease for lease in (parent.leases if parent else ()) if lease.job_id == job.id), None)
    place_for = _again(tick, job, before, given) or _placed(tick, job, parent, given, ends_at_s - starts_at_s)
    if place_for is None:
        return None
    name, workers = place_for
    newest = max(job.generation, before.generation if before else 0)
    goes_on = before is not None and before.worker_ids == workers and before.generation > job.generation
    return Lease(
        job_id=job.id,
        generation=newest if goes_on else newest + 1,
        combination=(job.id,),
        accelerator_type=name,
        worker_ids=workers,
        round_index=parent.round_index + 1 if parent else 1,
        expires_at_s=ends_at_s,
        plan=job.spec.plan,
    )


def _again(
    tick: Tick, job: Job, before: Lease | None, given: Sequence[Lease]
) -> tuple[AcceleratorType, Workers] | None:
    """The workers that the round before gives a gang which has yet to start, if they are still there for it."""
    if before is None or before.generation <= job.generation:
        return None
    free = {worker.id for worker in tick.usable.workers}.difference(*(lease.worker_ids for lease in given))
    return (before.accelerator_type, before.worker_ids) if free.issuperset(before.worker_ids) else None


def _placed(
    tick: Tick, job: Job, parent: RoundPlan | None, given: Sequence[Lease], round_s: float
) -> tuple[AcceleratorType, Workers] | None:
    """Workers for the gang, of its reserved type if there are enough; None if no type has enough."""
    taken = {worker for lease in given for worker in lease.worker_ids}
    live = [lease for lease in (parent.leases if parent else ()) if lease.expires_at_s > tick.now_s]
    others = [lease for lease in live if taken.isdisjoint(lease.worker_ids)]
    held = {lease.job_id: (lease.accelerator_type,) for lease in given}
    types = types_for(tick, job, held, round_duration_s=round_s)
    places = ((name, _of_type(tick, job, name, others, given)) for name in types)
    return next(((name, workers) for name, workers in places if workers), None)


def _of_type(
    tick: Tick, job: Job, name: AcceleratorType, others: Sequence[Lease], given: Sequence[Lease]
) -> Workers | None:
    """Workers of the type for the gang, beside those that are given already; None if there are not enough."""
    if _workers_with(tick, job, name, given) is None:
        return None
    staying = ([each for each in others if each not in gone] for gone in _who_goes(others, name, job.spec.scale_factor))
    return next(filter(None, (_workers_with(tick, job, name, [*given, *each]) for each in staying)), None)


def _who_goes(leases: Sequence[Lease], name: AcceleratorType, size: int) -> Iterator[Sequence[Lease]]:
    """Which gangs might leave: nobody; one of the type, the one of the most similar size first; all."""
    yield ()
    of_type = [lease for lease in leases if lease.accelerator_type == name]
    for lease in sorted(of_type, key=lambda each: (len(each.worker_ids) < size, len(each.worker_ids))):
        yield [each for each in leases if each.worker_ids == lease.worker_ids]
    yield leases


def _workers_with(tick: Tick, job: Job, name: AcceleratorType, leases: Sequence[Lease]) -> Workers | None:
    """Workers of the type for the gang beside these leases; None if there are not enough."""
    held = [(lease.worker_ids, _needs(tick, lease)) for lease in leases]
    return _workers(job, name, _layout(tick, held, job.spec.needs))


def _layout(tick: Tick, held: Sequence[Held], needs: Needs) -> Layout:
    """The workers that nobody holds, on nodes of which gangs hold a part; `needs`: of whoever wants some."""
    used = used_of_kept(held, [needs], tick.seen.cluster)
    return Layout(usable(tick.usable, {}, [worker for workers, _ in held for worker in workers]), used)


def _workers(job: Job, name: AcceleratorType, layout: Layout) -> Workers | None:
    size, needs = job.spec.scale_factor, job.spec.needs
    if layout.feasibility.ranks(needs).get(name, 0) < size:
        return None
    return place([(0, name, size)], layout, {}, needs={0: needs} if needs != NO_NEEDS else None).get(0)


def _needs(tick: Tick, lease: Lease) -> Needs:
    job = tick.jobs.get(lease.job_id)
    return job.spec.needs if job else NO_NEEDS


def _is_to_come(tick: Tick, lease: Lease) -> bool:
    job = tick.jobs.get(lease.job_id)
    return job is not None and lease.generation > job.generation and lease.expires_at_s > tick.now_s


def _staying_workers(tick: Tick) -> Counter[AcceleratorType]:
    """How many workers of each type gangs hold in the newest round that may not be preempted."""
    staying: Counter[AcceleratorType] = Counter()
    for lease in tick.round_plans[-1].leases if tick.round_plans else ():
        if lease.job_id in tick.index.non_preemptible and lease.expires_at_s > tick.now_s:
            staying[lease.accelerator_type] += len(lease.worker_ids)
    return staying
