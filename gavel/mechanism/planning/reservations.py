"""Accepts reservations of sessions, so that together with all that may not be preempted they never exceed the workers.

From then on nothing else that may not be preempted is started if it could still be there when a reservation begins
(non_preemptible.py), and the session gets its lease at its time (reserved_leases.py).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from gavel.composition import effective
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.reservations import (
    NOTICE_ROUNDS,
    Calendar,
    Claim,
    claim_of,
    has_reservation,
    held_types,
    outlasted,
    sharing,
    when,
)
from gavel.ports import Commitments
from gavel.types import AcceleratorType, Job, JobId, JobSpec, JobState, region_of_type

AHEAD_S = 90 * 86_400.0  # a reservation begins within so many seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Accepts reservations, and longer sessions beside them. `settings`: those of the service."""

    settings: Settings

    def accepted(self, spec: JobSpec, commitments: Commitments) -> JobSpec:
        """Return the specification with the type of its reservation, the one of which most workers stay free.

        Raises InvalidRequest, with what is in the way and the next instant that would do.
        """
        round_s = self._round_s(commitments)
        claim, calendar = _wanted(spec, commitments), calendar_of(commitments, round_s)
        earliest_s = commitments.now_s + NOTICE_ROUNDS * round_s
        latest_s = commitments.now_s + AHEAD_S
        if claim.starts_at_s > latest_s:
            raise InvalidRequest("reserved_at_s", f"is too far ahead; reserve up to {when(latest_s)}")
        is_early = claim.starts_at_s < earliest_s
        if not is_early and (types := calendar.types(claim)):
            return _of_type(spec, max(types, key=lambda name: calendar.least_free(name, claim)))
        why = _too_early(round_s) if is_early else calendar.why_not(claim)
        would_do_s = calendar.next_at_s(claim, max(claim.starts_at_s, earliest_s), latest_s)
        advice = f"It can be {when(would_do_s)}" if would_do_s else "No later time would do; ask for fewer workers"
        raise InvalidRequest(
            "reserved_at_s", f"the session cannot be reserved {when(claim.starts_at_s)}. {why} {advice}"
        )

    def check_extension(self, job: Job, longest_s: float, commitments: Commitments) -> None:
        """Raise InvalidRequest if a session that lasts so long would be in the way of a reservation."""
        jobs = [each for each in commitments.jobs if each.id != job.id]
        round_s = self._round_s(commitments)
        others = calendar_of(replace(commitments, jobs=jobs), round_s)
        spec = replace(job.spec, longest_s=longest_s)
        held = _held(commitments).get(job.id, set())
        claim = _claim_now(replace(job, spec=spec), held, commitments.now_s, round_s)
        if claim is not None and len(others.types_later(claim)) < len(claim.types):
            raise InvalidRequest("by_s", f"the session would be in the way of a reservation. {others.why_not(claim)}")

    def _round_s(self, commitments: Commitments) -> float:
        """The length of a round: of the composition in force, or of one before it that has planned a longer one."""
        in_force = effective(self.settings, commitments.policy).round_duration_s
        plans = [plan for plan in commitments.plans if plan.ends_at_s > commitments.now_s]
        return max([in_force, *(plan.duration_s for plan in plans)])


def _too_early(round_s: float) -> str:
    notice_s = NOTICE_ROUNDS * round_s
    return f"A reservation begins {notice_s:g} s from now or later; without a time it starts once there is room."


def calendar_of(commitments: Commitments, round_duration_s: float) -> Calendar:
    """Return who claims which workers when: gangs that are there or about to start, and reservations."""
    held, now_s = _held(commitments), commitments.now_s
    by_id = {job.id: job for job in commitments.jobs if job.id in held}
    left_out = outlasted(sharing(commitments.plans, by_id.keys()), by_id)
    jobs = [job for job in commitments.jobs if job.id not in left_out]
    claims = (_claim_now(job, held.get(job.id, set()), now_s, round_duration_s) for job in jobs)
    tiers = {tier.name: tier for tier in commitments.tiers}
    return Calendar(tiers, commitments.cluster.capacity_workers(), [each for each in claims if each])


def _held(commitments: Commitments) -> dict[JobId, set[AcceleratorType]]:
    """The types that jobs hold; all of them for a gang of which the newest rounds say nothing."""
    jobs = {job.id: job for job in commitments.jobs}
    unknown = {
        job.id: set(commitments.cluster.accelerator_types) for job in jobs.values() if job.state is JobState.LEASED
    }
    return unknown | held_types(commitments.plans, commitments.now_s, jobs)


def _claim_now(job: Job, held: Collection[AcceleratorType], now_s: float, round_duration_s: float) -> Claim | None:
    """What the job claims by its gang, or by its reservation; None if it has neither."""
    if held:
        return claim_of(job, held, now_s, round_duration_s=round_duration_s)
    if has_reservation(job, now_s):
        types = (job.spec.reserved_type,)
        return claim_of(job, types, now_s, round_duration_s=round_duration_s, is_reserved=True)
    return None


def _wanted(spec: JobSpec, commitments: Commitments) -> Claim:
    starts_at_s = spec.reserved_at_s or 0.0
    return Claim(
        tier=spec.tier,
        workers=spec.scale_factor,
        types=Feasibility(commitments.cluster).types_of(spec),
        starts_at_s=starts_at_s,
        ends_at_s=starts_at_s + (spec.longest_s or 0.0),
    )


def _of_type(spec: JobSpec, name: AcceleratorType) -> JobSpec:
    """The specification with its reserved type; a type of one region keeps the session in that region."""
    region = region_of_type(name)
    return replace(spec, reserved_type=name, regions=(region,) if region else spec.regions)
