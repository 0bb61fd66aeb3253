"""On which accelerator types a session may start whose reservation has begun."""

from collections.abc import Collection, Mapping
from itertools import chain

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.reservations import Calendar, claim_of, has_reservation
from gavel.mechanism.tick import Tick
from gavel.types import AcceleratorType, Job, JobId


def types_for(
    tick: Tick, job: Job, held: Mapping[JobId, Collection[AcceleratorType]], *, round_duration_s: float
) -> list[AcceleratorType]:
    """Return its reserved type, then the others on which it would be in the way of no reservation of another session.

    `held`: the types that jobs which may not be preempted hold, by job.
    """
    spec, possible = job.spec, Feasibility(tick.usable).types_of(job.spec)
    others = [name for name in possible if name != spec.reserved_type]
    if not others:
        return [spec.reserved_type]
    calendar = _without(tick, job, held, round_duration_s)
    claim = claim_of(job, others, tick.now_s, round_duration_s=round_duration_s)
    return [spec.reserved_type, *calendar.types_later(claim)]


def _without(
    tick: Tick, job: Job, held: Mapping[JobId, Collection[AcceleratorType]], round_duration_s: float
) -> Calendar:
    """The claims of all other gangs that may not be preempted, and of all other reservations."""
    jobs = tick.index.non_preemptible
    stay = (claim_of(jobs[name], held[name], tick.now_s, round_duration_s=round_duration_s) for name in held)
    reserved = (
        claim_of(each, (each.spec.reserved_type,), tick.now_s, round_duration_s=round_duration_s, is_reserved=True)
        for each in jobs.values()
        if has_reservation(each, tick.now_s) and each.id not in held and each.id != job.id
    )
    capacity = tick.seen.cluster.capacity_workers()
    return Calendar(tick.snapshot.tiers, capacity, chain(stay, reserved))
