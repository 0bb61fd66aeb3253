"""Who claims workers later: on which types a session may start or stay without being in the way of a reservation."""

from collections.abc import Collection, Mapping

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.reservations import Calendar, claim_of, has_reservation, outlasted, sharing
from gavel.mechanism.tick import Tick
from gavel.types import AcceleratorType, Job, JobId

Held = Mapping[JobId, Collection[AcceleratorType]]
"""The types that gangs hold, by job."""


def types_for(tick: Tick, job: Job, held: Held, *, round_duration_s: float) -> list[AcceleratorType]:
    """Return the reserved type of a session that is to start, then others on which it is in the way of no reservation.

    `held`: of the gangs that stay.
    """
    spec = job.spec
    others = [name for name in Feasibility(tick.usable).types_of(spec) if name != spec.reserved_type]
    if not others:
        return [spec.reserved_type]
    left_out = {job.id, *outlasted(sharing(tick.round_plans, held.keys()), tick.jobs)}
    calendar = claimed_later(tick, held, left_out=left_out, round_duration_s=round_duration_s)
    claim = claim_of(job, others, tick.now_s, round_duration_s=round_duration_s)
    return [spec.reserved_type, *calendar.types_later(claim)]


def claimed_later(tick: Tick, held: Held, *, left_out: Collection[JobId], round_duration_s: float) -> Calendar:
    """Return what gangs that stay and may not be preempted, and reservations, claim; without the jobs left out."""
    calendar = Calendar(tick.snapshot.tiers, tick.seen.cluster.capacity_workers())
    for job in tick.index.non_preemptible.values():
        is_held = job.id in held
        if job.id in left_out or not (is_held or has_reservation(job, tick.now_s)):
            continue
        types = held[job.id] if is_held else (job.spec.reserved_type,)
        calendar.add(claim_of(job, types, tick.now_s, round_duration_s=round_duration_s, is_reserved=not is_held))
    return calendar
